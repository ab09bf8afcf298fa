"""Where `infinity-compile` begins: signals first, then everything else is loaded."""

from infinity_v3.artifacts.early_signals import end_on_signals


def main() -> None:
    """Entry point; exits with the program's code."""
    end_on_signals()
    from infinity_v3.compiler.cli import main as run_program

    run_program()
