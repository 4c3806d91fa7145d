"""What a row of the table of trainers is made from."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Trainer:
    """A public training program, started by its own command."""

    name: str
    command: str  # in a shell; CHECKOUT stands for the checkout's folder, or an empty one without a repository
    source: str  # the page that documents the command
    steps: int | None = None  # that the report must have seen; None: not known in advance
    repository: str = ""  # owner/name on GitHub
    commit: str = ""
    folder: str = "."  # of the checkout, where the command runs
    packages: tuple = ()  # pip's requirements, installed without dependencies into a folder of the trainer's own
    data: tuple = ()  # functions of the checkout's folder
    python_path: str = ""  # folder of the checkout
    environment: tuple = ()  # (name, value)
    options: tuple = ()  # of gpucast run
    message: str = ""  # with exit code 2, for a program that cannot run on this card
    torch: str = ""  # a release other than that of the main environment: the environment torch-RELEASE beside it
    limit: float = 600  # seconds
    remark: str = ""  # what was made smaller, and why
    leaves: str = r"(?!gpucast)"  # files in the temporary folder that are not ours

    def checkout(self, checkouts: Path):
        """Several trainers of one repository share it."""
        return (checkouts / (self.repository.split("/")[1] if self.repository else self.name.replace(" ", "-"))).resolve()
