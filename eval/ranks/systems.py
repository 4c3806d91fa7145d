"""Machines of measured collectives: gpucast's card, and what differs from the machine that the card is usually in."""

import dataclasses

SOURCE = "the row's machine"


@dataclasses.dataclass(frozen=True)
class System:
    card: str
    usual: str  # its group of data/network.json
    changes: dict = dataclasses.field(default_factory=dict)  # of that group
    machine: str = ""  # of `gpucast machines`, where the usual one has other links
    hop_ns: float = 0  # of a small message between nodes, from the smallest row of the same log; 0: gpucast's own
    bus_bytes_per_s: float = 0  # of the plain estimate: the datasheet's rate in one direction

    def constants(self):
        """Sections of a constants file."""
        network = {}
        if self.changes:
            network[self.usual] = {"source": SOURCE, **self.changes}
        if self.hop_ns:
            network["network"] = {"source": SOURCE, "hop_ns": self.hop_ns}
        return network


A100 = {"card": "a100-80", "usual": "usual_ampere", "bus_bytes_per_s": 300e9}
H100 = {"card": "h100-80", "usual": "usual_hopper", "bus_bytes_per_s": 450e9}
B200 = {"card": "b200", "usual": "usual_blackwell", "bus_bytes_per_s": 900e9}

# By the names of aiconfigurator's systems. A tray of an NVL72 has four cards.
SYSTEMS = {
    "a100_sxm": System(**A100),
    "a100_pcie": System("a100-80-pcie", "usual_slot", bus_bytes_per_s=31.5e9),
    "h100_sxm": System(**H100),
    "h100_pcie": System("h100-80-pcie", "usual_slot", bus_bytes_per_s=63e9),
    "h200_sxm": System("h200", "usual_hopper", bus_bytes_per_s=450e9),
    "b200_sxm": System(**B200),
    "b300_sxm": System(**B200),
    "gb200": System(**B200, changes={"cards": 4}),
    "gb300": System(**B200, changes={"cards": 4}),
    "l4": System("l4", "usual_slot", bus_bytes_per_s=31.5e9),
    "rtx_pro_6000_server": System("rtx5090", "usual_slot", machine="rtxpro6000-server", bus_bytes_per_s=63e9),
    "l40s": System("l40s", "usual_slot", bus_bytes_per_s=31.5e9),
}

# Logs of several nodes, and of cards in slots: by the card and words of the columns `interconnect` and `note`.
MACHINES = (
    ("A100-80 SXM", "EFA 4x100", "p4de", System(**A100, changes={"network_cards": 4, "network_card_bytes_per_s": 12.5e9}, hop_ns=73000)),
    ("H100-80 SXM", "TCPXO", "a3-mega", System(**H100, changes={"network_card_bytes_per_s": 25e9}, hop_ns=54000)),
    ("H100-80 SXM", "NDR400", "nd-h100-v5", System(**H100)),
    ("H100-80 SXM", "DGX H100", "dgx-h100", System(**H100)),
    ("A100-80 SXM", "NVSwitch", "a100 node", System(**A100)),
    ("RTX 4090", "no P2P", "rtx4090 node", System("rtx4090", "usual_slot", bus_bytes_per_s=31.5e9)),
)


def machine_of(card, interconnect, note):
    """(name, System) of a row of collectives_nodes.csv.gz; None if it is not known. A log that was disturbed has a name of its own."""
    for of_card, word, name, system in MACHINES:
        if of_card == card and word in interconnect:
            return name + (" (disturbed)" if "disturbed" in note else ""), system
    return None
