"""What a patch is made from: the places that a run recorded (python/gpucast/places.py), and the files that they are in."""

import ast
import os

from source import ByHand, Source


class Problem(Exception):
    """Why there is no patch at all."""

    def __init__(self, text, where="", to_do=""):
        super().__init__(text)
        self.where, self.to_do = where, to_do


class Job:
    def __init__(self, described):
        places = described["places"]
        self.what_ifs = described["what_ifs"]
        self.folder = described["folder"]
        self.notes = places["notes"]
        self.details = places["what_ifs"]
        self.main = places["main"]
        self._hashes = places["files"]
        self._sources = {}

    def of_kind(self, *kinds):
        return [note for note in self.notes if note["kind"] in kinds]

    def source(self, path):
        if path.startswith("<") or not path:
            raise ByHand("the script is no file")
        if path not in self._sources:
            self.name_of(path)
            try:
                source = Source(path)
            except (OSError, SyntaxError, UnicodeError) as error:
                raise ByHand(f"{os.path.basename(path)} cannot be read: {error}") from None
            if source.hash != self._hashes[path]:
                raise Problem("the file was changed since the run", path, "ask again: runs of a changed script are made anew")
            self._sources[path] = source
        return self._sources[path]

    def forget_after(self, before):
        """Takes back the edits of a change that could not be placed. `before`: (source, state) of the sources then."""
        known = dict(before)
        for source in self._sources.values():
            source.restore(known.get(source, Source.NO_EDITS))

    def sources(self):
        return self._sources.values()

    def name_of(self, path):
        """The path in the patch: from the folder of the command."""
        for folder, file in ((self.folder, path), (os.path.realpath(self.folder), os.path.realpath(path))):
            if file.startswith(folder.rstrip(os.sep) + os.sep):
                return os.path.relpath(file, folder)
        raise ByHand(f"{path} is outside of the folder in which the command runs")

    def call(self, note, names=None):
        """(source, call) of the innermost line of the user that did it."""
        if not note["direct"]:
            raise ByHand(f"a library does it, from line {note['sites'][0]['line']} of {os.path.basename(note['sites'][0]['file'])}")
        site = note["sites"][0]
        source = self.source(site["file"])
        return source, source.call_at(site, names or called(note))

    def runs_once(self, sites):
        """Whether none of these lines is in a loop of its function."""
        for site in sites:
            source = self.source(site["file"])
            if source.loops_around(source.statement_at(site)):
                return False
        return True


def called(note):
    """The names of the function that a note is about; None: not known."""
    return [note["called"]] if "called" in note else None


def is_name(node):
    """model, self.model"""
    return isinstance(node, ast.Name) or (isinstance(node, ast.Attribute) and is_name(node.value))
