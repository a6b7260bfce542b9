"""Gives the pages the package's version, and the search box a name for screen readers."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any


def on_config(config: Any) -> Any:
    """Show the version beside the name, on every page."""
    text = Path(config.config_file_path).with_name("pyproject.toml").read_text(encoding="utf-8")
    config.site_name = f"{config.site_name} {tomllib.loads(text)['project']['version']}"
    return config


def on_post_page(output: str, **kwargs: Any) -> str:
    """Name the dialog of the search, which the theme leaves without a name."""
    box = 'data-md-component="search" role="dialog"'
    return output.replace(box, f'{box} aria-label="Search"')
