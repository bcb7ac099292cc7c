"""Shows a recovery's progress: rows, relay position, and the remaining bytes of relay log."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from producer.epochs.progress import PublishProgress
from relay_store.layout import directory as layout
from relay_store.layout.directory import RelayPosition
from tailrace.service.background import repeated
from tailrace.service.progress import Snapshot, progress_display

Watch = Callable[[PublishProgress, RelayPosition, RelayPosition], None]


@contextmanager
def show_progress(channel: str, root: Path) -> Iterator[Watch]:
    """Yield a function that starts to show a recovery's progress every second until the block ends."""
    with progress_display(f"recover {channel}") as show, ExitStack() as block:

        def watch(progress: PublishProgress, start: RelayPosition, end: RelayPosition) -> None:
            whole = bytes_between(root, start, end)

            def look() -> None:
                here = progress.position or start
                left = bytes_between(root, here, end)
                show(Snapshot(progress.rows, str(here), None, float(whole - left), float(left)))

            block.enter_context(repeated(look, 1.0, "progress"))

        yield watch


def bytes_between(root: Path, start: RelayPosition, end: RelayPosition) -> int:
    """Return the number of bytes of relay files between two positions."""
    total = end.pos - start.pos
    for subdir in layout.read_index(root):
        for file in layout.binlog_files(root / subdir):
            if start.order[:2] <= RelayPosition(subdir, file, 0).order[:2] < end.order[:2]:
                total += (root / subdir / file).stat().st_size
    return max(0, total)
