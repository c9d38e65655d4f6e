"""Objects in stores such as S3, through fsspec: listing, reading ranges, writing whole objects.

fsspec and the package of the store (s3fs for S3) are loaded when a URL is given. They make the requests, find the
credentials and repeat what fails for a moment.

Invariants: an object that changed since it was listed gives an error, not records. `storage_options`, which may have
credentials, are neither stored nor shown: what of them is secret is left out of errors.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from importlib import import_module
from io import BufferedReader
from typing import Any, NamedTuple, TypeVar

from ascot import errors

__all__ = ["Stored", "Stores", "absolute", "is_url"]

T = TypeVar("T")

MIB = 1 << 20
URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
PATTERN = frozenset("*?[")
# A user and a password before the host, which belong into `storage_options`.
PASSWORD = re.compile(r"[^:/]+://[^/@]*:[^/@]*@")
# Fields of fsspec's `info` that change with the bytes of an object, the best first. Their names differ from store to
# store, also in their case.
VERSIONS = ("etag", "generation", "content_md5", "md5hash", "checksum", "mtime", "last_modified", "lastmodified",
            "updated", "modified", "created")  # fmt: skip
SECRET = re.compile("secret|key|token|pass|sas|cred|auth", re.IGNORECASE)
# Requests for facts of objects at a time.
ASKED = 16
# Bytes of each part of an upload at least, and parts at a time. Stores take at most 10,000 parts.
PART_BYTES = 8 * MIB
PARTS_AT_A_TIME = 4
PARTS_MAX = 9_000


def is_url(path: str) -> bool:
    """Whether a path is the URL of an object.

    >>> is_url("s3://bucket/in"), is_url("/data/in"), is_url("data:in")
    (True, False, False)
    """
    return URL.match(path) is not None


def absolute(path: str) -> str:
    """The name of a file or directory by which every process finds it.

    >>> absolute("s3://bucket/out/"), absolute("file:///data/out")
    ('s3://bucket/out', '/data/out')
    """
    if path.lower().startswith("file://"):
        return os.path.abspath(path[len("file://") :])
    return path.rstrip("/") if is_url(path) else os.path.abspath(path)


class Stored(NamedTuple):
    """An object: its URL, its size and what changes with its bytes, empty if the store does not tell."""

    url: str
    size: int
    version: str


class Stores:
    """The object stores of a job."""

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        self._options = dict(options or {})
        self._systems: dict[str, Any] = {}
        # The objects that were listed in this process.
        self.listed: dict[str, Stored] = {}

    def __repr__(self) -> str:
        return "<ascot.cluster.objects.Stores>"

    def __reduce__(self) -> tuple[Any, ...]:
        # Connections are those of a process.
        return Stores, (self._options,)

    def system(self, url: str) -> Any:
        """The file system of fsspec for a URL. Raises ImportError if a package is missing, and InvalidRequest for
        a URL that cannot be used."""
        scheme = url.partition("://")[0].lower()
        if scheme not in self._systems:
            self._systems[scheme] = self._new_system(url, scheme)
        return self._systems[scheme]

    def _new_system(self, url: str, scheme: str) -> Any:
        if PASSWORD.match(url):
            raise errors.InvalidRequest(
                f"{scheme}://...: a URL with a password would be stored with the job\n  leave the password out, and "
                "give it in storage_options="
            )
        if "::" in url:
            raise errors.InvalidRequest(f"{url}: URLs of one store in another are not read\n  give the inner URL")
        if self._options and self._systems:
            raise errors.InvalidRequest(
                f"storage_options=: they are those of one store, and the job uses {next(iter(self._systems))} and "
                f"{scheme}\n  leave them out, and let the packages of both stores find their settings on the nodes"
            )
        try:
            fsspec: Any = import_module("fsspec")
        except ImportError as error:
            raise ImportError(
                f"{url} is in an object store, which needs fsspec and the package of the store on all nodes: "
                "pip install s3fs (or gcsfs, adlfs, ...)"
            ) from error
        try:
            kind = fsspec.get_filesystem_class(scheme)
        except ImportError as error:
            # fsspec says what to install.
            raise ImportError(f"{url}: a package for {scheme}:// is missing on this node: {error}") from error
        except ValueError as error:
            raise errors.InvalidRequest(
                f"{url}: fsspec knows no store for {scheme}://\n  give a path, or a URL such as s3://BUCKET/NAME"
            ) from error
        with self._told(url, "the store cannot be used"):
            # Listings that are kept would hide that objects change.
            return kind(**{**self._options, "skip_instance_cache": True, "use_listings_cache": False})

    @contextmanager
    def _told(self, url: str, what: str) -> Iterator[None]:
        """Errors of the store as those of the package. Their causes are left out, which may have secrets."""
        try:
            yield
        except errors.AscotError:
            raise
        except FileNotFoundError as error:
            reason = self._reason(error)
            more = "" if reason in url else f": {reason}"
            raise errors.FileMissing(f"{url}: no such object{more}", filename=url) from None
        except PermissionError as error:
            raise errors.FileDenied(f"{url}: {what}: {self._reason(error)}", filename=url) from None
        except Exception as error:
            number = error.errno if isinstance(error, OSError) else None
            raise errors.FileError(f"{url}: {what}: {self._reason(error)}", filename=url, errno=number) from None

    def _reason(self, error: Exception) -> str:
        """The first line of an error without secrets."""
        text = (str(error).strip().splitlines() or [""])[0] or type(error).__name__
        for secret in _secrets_of(self._options):
            text = text.replace(secret, "...")
        return text

    # ---------------------------------------------------------------- inputs

    def find(self, name: str) -> list[Stored]:
        """The objects of a URL: one object, those of a pattern, or those below a directory. Of a directory, names
        that begin with `.` or `_` are left out."""
        system = self.system(name)
        with self._told(name, "cannot be listed"):
            if PATTERN & set(name):
                found = system.glob(name, detail=True)
                infos = [found[one] for one in sorted(found) if found[one]["type"] == "file"]
                if not infos:
                    raise errors.FileMissing(f"no object matches {name}", filename=name)
            else:
                infos = [system.info(name)]
                if infos[0]["type"] == "directory":
                    infos = self._below(system, name)
                    if not infos:
                        raise errors.FileMissing(f"{name}: there are no objects below it", filename=name)
                else:
                    return [self._take(infos[0], name)]
            return [self._take(info, system.unstrip_protocol(info["name"])) for info in infos]

    @staticmethod
    def _below(system: Any, name: str) -> list[dict[str, Any]]:
        found = system.find(name, detail=True)
        start = len(system._strip_protocol(name).rstrip("/")) + 1
        hidden = (".", "_")
        return [
            found[one]
            for one in sorted(found)
            if found[one]["type"] == "file"
            # A name that ends in a slash stands for a directory.
            and not one.endswith("/")
            and not any(part.startswith(hidden) for part in one[start:].split("/"))
        ]

    def _take(self, info: Mapping[str, Any], url: str) -> Stored:
        found = self.listed[url] = _stored(info, url)
        return found

    def facts(self, urls: Iterable[str]) -> list[Stored]:
        """What objects are now."""
        return self.each(urls, self._fact)

    def _fact(self, url: str) -> Stored:
        system = self.system(url)
        with self._told(url, "cannot be read"):
            return _stored(system.info(url), url)

    def each(self, urls: Iterable[str], work: Callable[[str], T]) -> list[T]:
        """Calls `work` for each URL, several at a time if the store allows it."""
        wanted = list(urls)
        if not wanted:
            return []
        # Made in this thread.
        at_once = self.at_once(wanted[0], ASKED)
        with ThreadPoolExecutor(at_once, "ascot objects") as pool:
            return list(pool.map(work, wanted))

    def at_once(self, url: str, most: int) -> int:
        """The number of requests at a time: a system that makes them one after another is used by one thread."""
        return most if self.system(url).async_impl else 1

    def check(self, url: str, size: int, version: str) -> None:
        """Raises InvalidRequest if an object is not the one that was listed."""
        if self._fact(url)[1:] != (size, version):
            raise errors.InvalidRequest(
                f"{url} changed since the job began\n  start the job again when no program writes to its inputs"
            )

    def read(self, url: str, start: int, end: int) -> bytes:
        """The bytes of a range."""
        system = self.system(url)
        with self._told(url, "cannot be read"):
            found: bytes = system.cat_file(url, start=start, end=end)
            if len(found) != end - start:
                raise errors.FileError(f"{url}: it ends at byte {start + len(found)}", filename=url)
        return found

    def open(self, url: str) -> BufferedReader:
        """An object as a binary file."""
        system = self.system(url)
        with self._told(url, "cannot be read"):
            found: BufferedReader = system.open(url, "rb")
            return found

    # ---------------------------------------------------------------- outputs

    def sizes(self, output: str) -> dict[str, int]:
        """The sizes of the objects below a URL, by what follows it in their names."""
        system = self.system(output)
        start = len(system._strip_protocol(output).rstrip("/")) + 1
        with self._told(output, "cannot be listed"):
            found = system.find(output, detail=True)
        return {name[start:]: int(info["size"] or 0) for name, info in found.items()}

    def upload(self, path: str, url: str) -> int:
        """Writes a file to an object, which appears when it is whole. Returns its size."""
        system, size = self.system(url), os.path.getsize(path)
        with self._told(url, "cannot be written"):
            system.put_file(path, url, **_parts_of(system, size))
        return size

    def write(self, url: str, content: bytes) -> None:
        """Writes a small object."""
        system = self.system(url)
        with self._told(url, "cannot be written"):
            system.pipe_file(url, content)

    def remove(self, urls: Iterable[str]) -> None:
        """Removes objects; those that are gone are no fault."""

        def removed(url: str) -> None:
            with suppress(errors.FileMissing), self._told(url, "cannot be removed"):
                self.system(url).rm_file(url)

        self.each(urls, removed)


def _stored(info: Mapping[str, Any], url: str) -> Stored:
    if info.get("type") == "directory":
        raise errors.FileMissing(f"{url}: this is a directory, no object", filename=url)
    if info.get("size") is None:
        raise errors.FileError(f"{url}: the store does not tell its size", filename=url)
    # The same name may be there in several cases.
    fields = {name.lower(): value for name, value in info.items() if value}
    named = next((name for name in VERSIONS if name in fields), None)
    # A listing may have an ETag in quotes, and a request for the object without.
    version = "" if named is None else f"{named} {str(fields[named]).strip(chr(34))}"
    return Stored(url, int(info["size"]), version)


def _parts_of(system: Any, size: int) -> dict[str, int]:
    """The arguments for an upload in parts, as far as a system has them."""
    method = getattr(system, "_put_file", None) if system.async_impl else system.put_file
    known = inspect.signature(method or system.put_file).parameters
    # In whole MiB, which all stores take.
    shortest = (size // PARTS_MAX // MIB + 1) * MIB
    wanted = {"chunksize": max(PART_BYTES, shortest), "max_concurrency": PARTS_AT_A_TIME}
    return {name: value for name, value in wanted.items() if name in known}


def _secrets_of(options: Mapping[str, Any]) -> Iterator[str]:
    """The texts in options whose names are those of secrets."""
    for name, value in options.items():
        if isinstance(value, Mapping):
            yield from _secrets_of(value)
        elif isinstance(value, str) and len(value) > 3 and SECRET.search(str(name)):
            yield value
