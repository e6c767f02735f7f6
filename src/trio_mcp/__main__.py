"""``python -m trio_mcp``."""

from .cli import main

if __name__ == "__main__":
    main()
