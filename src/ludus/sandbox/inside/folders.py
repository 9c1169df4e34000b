"""Folders that programs write to: how many files they hold, and making them as new."""

from __future__ import annotations

import os


def used_files(path: str) -> int:
    """How many files the file system of a path holds; 0 if a program removed the path."""
    try:
        stats = os.statvfs(path)
    except OSError:
        return 0
    return stats.f_files - stats.f_ffree


def empty(path: str, budget: int = 10_000, depth: int = 64) -> bool:
    """Remove everything in a folder. Gives up, and returns False, if that takes too long or goes too deep."""
    folders = [path]
    while folders:
        folder = folders[-1]
        try:
            os.chmod(folder, 0o700)
            entries = list(os.scandir(folder))
        except OSError:
            return False
        inner = [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
        budget -= len(entries) + 1
        if budget < 0 or folder.count("/") > depth:
            return False
        try:
            for entry in entries:
                if not entry.is_dir(follow_symlinks=False):
                    os.unlink(entry.path)
            if inner:
                folders += inner
            else:
                folders.pop()
                if folder != path:
                    os.rmdir(folder)
        except OSError:
            return False
    return True


def reset_metadata(path: str, mode: int) -> None:
    """Reset the mode, times and extended attributes of a path that stays: they can carry state too."""
    try:
        for name in os.listxattr(path):
            os.removexattr(path, name)
    except OSError:
        pass
    os.chmod(path, mode & 0o7777)
    os.utime(path, (0, 0))
