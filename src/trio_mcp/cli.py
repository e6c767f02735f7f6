"""The command line."""


def main() -> None:
    raise SystemExit("being written")
