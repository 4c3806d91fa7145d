"""Machines of measured collectives: gpucast's card and its machine."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class System:
    card: str
    machine: str  # of `gpucast machines`
    card_bytes_per_s: float  # of the plain estimate: the datasheet's rate in one direction, between cards
    network_bytes_per_s: float = 50e9  # and of a card's share of the network


A100, H100, B200, SLOT4, SLOT5 = 300e9, 450e9, 900e9, 31.5e9, 63e9

# By the names of aiconfigurator's systems. A tray of an NVL72 has four cards.
SYSTEMS = {
    "a100_sxm": System("a100-80", "dgx-a100-80", A100),
    "a100_pcie": System("a100-80-pcie", "pcie4-server", SLOT4),
    "h100_sxm": System("h100-80", "dgx-h100", H100),
    "h100_pcie": System("h100-80-pcie", "pcie5-server", SLOT5),
    "h200_sxm": System("h200", "dgx-h200", H100),
    "b200_sxm": System("b200", "dgx-b200", B200),
    "b300_sxm": System("b200", "dgx-b300", B200),
    "gb200": System("b200", "gb200-nvl72", B200),
    "gb300": System("b200", "gb300-nvl72", B200),
    "l4": System("l4", "l4-server", SLOT4),
    "l40s": System("l40s", "l40s-server", SLOT4),
    "rtx_pro_6000_server": System("rtx5090", "rtxpro6000-server", SLOT5),
}

# Words of the column `device`, for systems with other names.
DEVICES = (
    ("A100-SXM", "a100_sxm"),
    ("H100 80GB HBM3", "h100_sxm"),
    ("GB200", "gb200"),
    ("GB300", "gb300"),
    ("H200", "h200_sxm"),
    ("B200", "b200_sxm"),
    ("B300", "b300_sxm"),
    ("L40S", "l40s"),
    ("RTX PRO 6000", "rtx_pro_6000_server"),
)

# Logs of several nodes, and of cards in slots: by the card and words of the columns `interconnect` and `note`.
MACHINES = (
    ("A100-80 SXM", "EFA 4x100", "p4de", System("a100-80", "aws-p4de", A100, 6.25e9)),
    ("H100-80 SXM", "TCPXO", "a3-mega", System("h100-80", "gcp-a3-mega", H100, 25e9)),
    ("H100-80 SXM", "NDR400", "nd-h100-v5", System("h100-80", "azure-nd-h100-v5", H100)),
    ("H100-80 SXM", "DGX H100", "dgx-h100", System("h100-80", "dgx-h100", H100)),
    ("A100-80 SXM", "NVSwitch", "a100 node", System("a100-80", "dgx-a100-80", A100)),
    ("RTX 4090", "no P2P", "rtx4090 node", System("rtx4090", "rtx4090-8", SLOT4)),
)


def system_of(system, device):
    """(name, System) of a row of collectives_one_node.csv.gz; None if neither its system nor its device is known."""
    names = [system] if system in SYSTEMS else [name for word, name in DEVICES if word in device]
    return (system, SYSTEMS[names[0]]) if names else None


def machine_of(card, interconnect, note):
    """(name, System) of a row of collectives_nodes.csv.gz; None if it is not known. A log that was disturbed has a name of its own."""
    for of_card, word, name, system in MACHINES:
        if of_card == card and word in interconnect:
            return name + (" (disturbed)" if "disturbed" in note else ""), system
    return None
