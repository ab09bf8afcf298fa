"""Where `infinity_v3` begins: signals first, then everything else is loaded."""

from infinity_v3.artifacts.early_signals import end_on_signals


def main() -> None:
    """Entry point; ends the process with the product's exit codes."""
    end_on_signals()
    from infinity_v3.server.cli import main as run_program

    run_program()
