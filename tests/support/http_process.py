"""What the kernel knows of a running process: its family, open files, mapped files."""

from pathlib import Path


def descendants(pid: int) -> list[int]:
    """Processes that this one started, and theirs."""
    children = [
        int(child)
        for task in Path(f"/proc/{pid}/task").iterdir()
        for child in (task / "children").read_text().split()
    ]
    return [found for child in children for found in (child, *descendants(child))]


def mapped_files(pid: int) -> set[str]:
    """Paths of the files a process has in its address space."""
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    return {line.split(maxsplit=5)[5] for line in lines if line.count("/")}


def num_open_files(pid: int) -> int:
    """Descriptors a process holds."""
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
