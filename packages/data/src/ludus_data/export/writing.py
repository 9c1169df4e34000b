"""Writing a training set: to a draft that is renamed when it is complete, or to stdout."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from ludus.errors import UserError, missing_extra
from ludus.store.drafts import draft_path
from ludus_data.export.format import Packed, Writer

#: `--output -` writes JSON lines to stdout.
STDOUT = "-"

#: The name of the one file of rows in a dataset folder.
DATA_FILE = "train-00000-of-00001.parquet"

_BUFFER = 1 << 20
#: A row group has this many rows, or this many bytes.
_MOST_ROWS = 4000
_MOST_BYTES = 6 << 20


class ParquetFile(Writer):
    """A Parquet file in row groups of a few megabytes. A second thread compresses a group while the next one fills."""

    def __init__(self, file: IO[bytes], schema: Any) -> None:
        from pyarrow import parquet

        self._schema, self._stored = schema, stored_schema(schema)
        # Rollouts are not sorted, so statistics of row groups would help no reader. Most texts are long and distinct:
        # dictionary encoding would only hinder zstd.
        self._parquet = parquet.ParquetWriter(
            file, schema, compression="zstd", write_statistics=False, use_dictionary=False
        )
        self._batches: list[Any] = []
        self._rows = self._bytes = 0
        self._thread = ThreadPoolExecutor(1)
        self._written: Future[None] | None = None

    def write(self, packed: Packed, rows: int) -> None:
        """Add columns."""
        import pyarrow as pa

        self._batches.append(pa.ipc.read_record_batch(pa.py_buffer(packed), self._stored))
        self._rows += rows
        self._bytes += len(packed)
        if self._rows >= _MOST_ROWS or self._bytes >= _MOST_BYTES:
            self._flush()

    def finish(self) -> None:
        """Write the last rows and the end of the file."""
        self._flush()
        self._wait()
        self._thread.shutdown()
        self._parquet.close()

    def abandon(self) -> None:
        """Close the table, so that it does not write to its file later."""
        self._thread.shutdown()
        with contextlib.suppress(Exception):
            self._parquet.close()

    def _wait(self) -> None:
        """Wait until the last row group is written. Raises its error."""
        if self._written is not None:
            self._written.result()

    def _flush(self) -> None:
        self._wait()
        if self._rows:
            self._written = self._thread.submit(self._write_group, self._batches)
        self._batches, self._rows, self._bytes = [], 0, 0

    def _write_group(self, batches: list[Any]) -> None:
        import pyarrow as pa

        self._parquet.write_table(pa.Table.from_batches(batches).combine_chunks().cast(self._schema))


def no_place_in_table(error: Exception) -> UserError:
    """The error for a value that a table cannot hold."""
    cause = str(error).splitlines()[0][:200]
    return UserError(f"a value has no place in a Parquet table: {cause}", "Export to sft instead")


def stored_schema(schema: Any) -> Any:
    """The schema with texts in place of JSON, which rows hold as texts."""
    import pyarrow as pa

    kinds = {pa.json_(): pa.string(), pa.list_(pa.json_()): pa.list_(pa.string())}
    return pa.schema([(field.name, kinds.get(field.type, field.type)) for field in schema])


def require_pyarrow() -> None:
    """Refuse to start without pyarrow."""
    try:
        import pyarrow  # noqa: F401
    except ImportError as error:
        raise missing_extra("pyarrow, which writes Parquet,", "data") from error


class Outputs:
    """The files of one export. They appear under their names when the export is complete."""

    def __init__(self, target: str | Path, *, overwrite: bool) -> None:
        self.to_stdout = str(target) == STDOUT
        self.target = Path(target)
        self._drafts: list[tuple[Path, Path]] = []
        self._files: list[IO[bytes]] = []
        self._overwrite = overwrite

    @property
    def names(self) -> list[str]:
        """The files and folders that were made."""
        return [STDOUT] if self.to_stdout else [str(path) for path, _ in self._drafts]

    def file(self, path: Path | None = None) -> IO[bytes]:
        """A file to write; the output itself unless another path is given."""
        if self.to_stdout:
            return sys.stdout.buffer
        return self._open(self._draft(path or self.target))

    def folder(self) -> Path:
        """A folder to fill, in place of a file."""
        draft = self._draft(self.target, folder=True)
        draft.mkdir()
        return draft

    def file_in(self, path: Path) -> IO[bytes]:
        """A file in the folder to fill."""
        path.parent.mkdir(parents=True, exist_ok=True)
        return self._open(path)

    def complete(self) -> None:
        """Sync all files and rename them."""
        if self.to_stdout:
            sys.stdout.buffer.flush()
        for file in self._files:
            file.flush()
            os.fsync(file.fileno())
            file.close()
        for path, draft in self._drafts:
            if path.is_dir():  # `_draft` checked that an export wrote it
                shutil.rmtree(path)
            draft.replace(path)

    def discard(self) -> None:
        """Remove the drafts that were not renamed."""
        for file in self._files:
            with contextlib.suppress(OSError, ValueError):
                file.close()
        for _, draft in self._drafts:
            if draft.is_dir():
                shutil.rmtree(draft, ignore_errors=True)
            else:
                with contextlib.suppress(OSError):
                    draft.unlink(missing_ok=True)

    def _open(self, path: Path) -> IO[bytes]:
        file = path.open("xb", buffering=_BUFFER)
        self._files.append(file)
        return file

    def _draft(self, path: Path, *, folder: bool = False) -> Path:
        if os.path.lexists(path) and not self._overwrite:
            raise UserError(f"{path} exists already", "Choose another --output or add --overwrite")
        if folder and os.path.lexists(path) and not path.is_dir():
            raise UserError(f"{path} is a file, and this format makes a folder", "Choose another --output")
        if path.is_dir() and not (_is_dataset(path) and folder):
            raise UserError(f"{path} is a folder that no export made", "Choose another --output")
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = draft_path(path)
        self._drafts.append((path, draft))
        return draft


def _is_dataset(folder: Path) -> bool:
    """Whether a folder holds the files of an export, and nothing else."""
    files = {path.relative_to(folder).as_posix() for path in folder.rglob("*")}
    return not folder.is_symlink() and files <= {"README.md", "data", f"data/{DATA_FILE}"}


@contextmanager
def outputs(target: str | Path, *, overwrite: bool) -> Iterator[Outputs]:
    """The files of an export: complete if the block succeeds, removed if it fails."""
    files = Outputs(target, overwrite=overwrite)
    try:
        yield files
        files.complete()
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        raise UserError(f"cannot write {target}: {error.strerror}", "Make room or choose another --output") from error
    finally:
        files.discard()
