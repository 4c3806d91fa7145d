"""The rows of vTrain's sweep of plans: multi_gpu/runs_vtrain.csv of the data folder."""

import dataclasses

from eval.data_sets import card_of, read_csv


@dataclasses.dataclass(frozen=True)
class Row:
    model: str
    card: str
    gpus: int
    gpus_per_node: int
    hidden: int
    heads: int
    layers: int
    sequence: int
    global_batch: int
    micro_batch: int
    tp: int
    dp: int
    pp: int
    step_s: float
    half = True  # fp16

    @property
    def micro_batches(self):
        """That each rank computes in a step."""
        return self.global_batch // (self.dp * self.micro_batch)

    @property
    def recomputes(self):
        """vTrain's rows of one node do not: their time is three passes' at the rate of four passes in the others."""
        return self.gpus > self.gpus_per_node

    @property
    def stage_ranks(self):
        """One rank of each pipeline stage: Megatron numbers ranks by tensor group, then data, then stage."""
        return [stage * (self.gpus // self.pp) for stage in range(self.pp)]

    @property
    def plan_group(self):
        """Rows that differ in the plan alone: the same model, batch and number of cards."""
        return (self.hidden, self.layers, self.sequence, self.global_batch, self.gpus)


def vtrain_rows(data):
    """vTrain's sweep: rows with a step time, in the file's order."""
    found = []
    for line in read_csv(data / "multi_gpu" / "runs_vtrain.csv"):
        if not line["step_s"]:
            continue
        whole = {name: int(line[name]) for name in ("gpus", "gpus_per_node", "hidden", "heads", "layers", "micro_batch", "tp", "dp", "pp")}
        batch = {"sequence": int(line["seq_len"]), "global_batch": int(line["global_batch"])}
        found.append(Row(model=line["model"], card=card_of(line["card"]), step_s=float(line["step_s"]), **whole, **batch))
    return found
