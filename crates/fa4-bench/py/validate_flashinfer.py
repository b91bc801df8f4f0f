"""Holds exports against flashinfer-bench's own pydantic models: `python validate_flashinfer.py EXPORT`.

Prints a line for each thing that is wrong (file and line, object, field, the model's words), then what was looked at. Exit
code 0: valid; 1: not; 3: the package is not here.
"""

import importlib
import importlib.machinery
import importlib.util
import json
import pathlib
import sys
import types

PACKAGE = "flashinfer_bench"


class Anything(types.ModuleType):
    """In place of torch, which the package's helpers name and its models do not use."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


def models():
    """The model modules alone: the package's __init__ loads compilers and GPU libraries."""
    spec = importlib.machinery.PathFinder.find_spec(PACKAGE)
    if spec is None:
        print(f"{PACKAGE} is not installed here")
        sys.exit(3)
    if importlib.util.find_spec("torch") is None:
        sys.modules["torch"] = Anything("torch")
    root = pathlib.Path(spec.submodule_search_locations[0])
    for name, folder in ((PACKAGE, root), (f"{PACKAGE}.data", root / "data")):
        module = types.ModuleType(name)
        module.__path__ = [str(folder)]
        sys.modules[name] = module
    load = lambda name: importlib.import_module(f"{PACKAGE}.data.{name}")
    return load("definition").Definition, load("solution").Solution, load("trace").Trace


class Checker:
    def __init__(self, root):
        from pydantic import ValidationError

        self.root, self.ValidationError, self.wrong = root, ValidationError, []
        self.Definition, self.Solution, self.Trace = models()
        self.definitions, self.solutions, self.counts = {}, {}, {}
        # Names of files that are wrong themselves: whoever refers to them is not blamed.
        self.broken = set()

    def complain(self, where, what):
        self.wrong.append(f"{where}: {what}")

    def parse(self, model, text, where):
        """An object, or None after having said which field is wrong."""
        try:
            return model.model_validate_json(text)
        except self.ValidationError as error:
            name = self.name_of(text)
            for one in error.errors():
                field = ".".join(str(part) for part in one["loc"]) or "the whole"
                self.complain(where, f"{model.__name__} {name}: {field}: {one['msg']}")

    @staticmethod
    def name_of(text):
        try:
            fields = json.loads(text)
            return fields.get("name") or fields.get("workload", {}).get("uuid") or "without a name"
        except (ValueError, AttributeError):
            return "that cannot be read"

    def files(self, folder, ending):
        found = sorted((self.root / folder).rglob(f"*{ending}"))
        if not found:
            self.complain(folder, f"holds no {ending} file")
        return ((path, str(path.relative_to(self.root))) for path in found)

    def objects(self, folder, model, known):
        for path, where in self.files(folder, ".json"):
            thing = self.parse(model, path.read_text(encoding="utf-8"), where)
            if thing is None:
                self.broken.add(path.stem)
                continue
            if path.stem != thing.name:
                self.complain(where, f"holds {thing.name}")
            # The package refuses a whole data set for one name that is there twice, even below different definitions.
            if known.setdefault(thing.name, thing) is not thing:
                self.complain(where, f"{model.__name__} {thing.name}: name: is there twice")
        self.counts[folder] = len(known)

    def lines(self, folder, evaluated):
        count = 0
        for path, where in self.files(folder, ".jsonl"):
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                count += 1
                trace = self.parse(self.Trace, line, f"{where}:{number}")
                if trace is not None:
                    self.fits(trace, path.stem, f"{where}:{number}", evaluated)
        self.counts[folder] = count

    def fits(self, trace, stem, where, evaluated):
        """What no single model can see: do names lead somewhere, has the workload the definition's axes and inputs?"""
        say = lambda what: self.complain(where, f"Trace {trace.workload.uuid}: {what}")
        if {trace.definition, trace.solution} & self.broken:
            return None
        definition = self.definitions.get(trace.definition)
        if trace.definition != stem or definition is None:
            return say(f"definition: {trace.definition} is none of these")
        free = {name for name, axis in definition.axes.items() if axis.type == "var"}
        if set(trace.workload.axes) != free:
            say(f"workload.axes: has {sorted(trace.workload.axes)}, the definition leaves {sorted(free)} open")
        if set(trace.workload.inputs) != set(definition.inputs):
            say(f"workload.inputs: has {sorted(trace.workload.inputs)}, the definition {sorted(definition.inputs)}")
        if evaluated == trace.is_workload_trace():
            say("solution: belongs to traces, and to them only")
        if evaluated and trace.solution not in self.solutions:
            say(f"solution: {trace.solution} is none of these")
        elif evaluated and self.solutions[trace.solution].definition != trace.definition:
            say(f"solution: {trace.solution} is one of {self.solutions[trace.solution].definition}")
        return None

    def run(self):
        self.objects("definitions", self.Definition, self.definitions)
        self.objects("solutions", self.Solution, self.solutions)
        for name, solution in self.solutions.items():
            if solution.definition not in self.definitions and solution.definition not in self.broken:
                self.complain("solutions", f"Solution {name}: definition: {solution.definition} is none of these")
        self.lines("workloads", False)
        self.lines("traces", True)
        print("\n".join([*self.wrong, ", ".join(f"{count} {what}" for what, count in self.counts.items())]))
        return 1 if self.wrong else 0


if __name__ == "__main__":
    sys.exit(Checker(pathlib.Path(sys.argv[1])).run())
