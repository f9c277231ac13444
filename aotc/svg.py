"""Drawings as SVG text: what pictures of the project are made of."""

from collections.abc import Iterable
from html import escape


def draw_svg(width: float, height: float, font: int, parts: Iterable[str]) -> str:
    """The SVG of parts on a white ground."""
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'font-family="sans-serif" font-size="{font}">',
        f'<rect width="{width}" height="{height}" fill="white"/>', *parts, "</svg>", ""])


def draw_rect(x: float, y: float, width: float, height: float, colour: str,
              about: str = "") -> str:
    """A filled rectangle; ``about`` appears where a reader points at it."""
    shape = (f'<rect x="{x:.2f}" y="{y:.2f}" width="{width:.2f}" height="{height:.2f}" '
             f'fill="{colour}"')
    return f"{shape}><title>{escape(about)}</title></rect>" if about else f"{shape}/>"


def draw_text(x: float, y: float, text: str, anchor: str) -> str:
    """A line of text; anchor: start, middle or end, the part of it that is at ``x``."""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def draw_path(path: str, colour: str, more: str = "") -> str:
    """A line; more: other attributes of it."""
    return f'<path d="{path}" stroke="{colour}" {more + " " if more else ""}fill="none"/>'


__all__ = ["draw_path", "draw_rect", "draw_text", "draw_svg"]
