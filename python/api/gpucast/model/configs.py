"""The config of a model: from a folder or file, from those that come along, or from the hub. Only data is read; no code is run."""

from __future__ import annotations

import difflib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..command import Error

_ALONG = Path(__file__).with_name("models.json")
# About the file, how its weights are stored, or other code: not about what is trained.
_NOT_SHAPES = (
    "_name_or_path",
    "architectures",
    "auto_map",
    "dtype",
    "quantization_config",
    "torch_dtype",
    "transformers_version",
    "use_cache",
)


@dataclass(frozen=True)
class Model:
    name: str
    model_type: str
    architectures: tuple[str, ...]
    config: dict[str, Any]  # what decides shapes
    source: str  # where the config is from, for the report
    repository: str = ""  # for its own code: an id of the hub, or a folder
    own_code: bool = False  # it comes with Python code
    quantized: bool = False  # its weights are stored in fewer bits; training uses the chosen precision

    @property
    def text(self) -> dict[str, Any]:
        """The config of the language model in it."""
        inner = self.config.get("text_config")
        return inner if isinstance(inner, dict) else self.config


def along() -> dict[str, dict[str, Any]]:
    """The models that come along: {id: {"parameters", "config"}}."""
    return json.loads(_ALONG.read_text(encoding="utf-8"))["models"]


def find_model(name: str) -> Model:
    if os.path.exists(name):
        path = Path(name) / "config.json" if os.path.isdir(name) else Path(name)
        return _model(name, read_config(path), os.fspath(path), os.fspath(path.parent.absolute()))
    known = {id.lower(): id for id in along()}
    id = known.get(name.lower()) or next((id for id in known.values() if id.split("/")[1].lower() == name.lower()), None)
    if id is not None:
        return _model(id, along()[id]["config"], "comes with gpucast", "")
    if name.count("/") != 1 or name.startswith((".", "/", "~")) or name.endswith(".json"):
        raise Error("there is no such model", name, f"name a folder with config.json, or an id of the hub{_near(name)}")
    return _model(name, read_config(_from_hub(name)), f"https://huggingface.co/{name}", name)


def read_config(path: Path) -> dict[str, Any]:
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        what = (
            "this folder is of diffusers, which is not supported"
            if (path.parent / "model_index.json").exists()
            else "there is no config.json"
        )
        raise Error(what, str(path.parent), "name the folder of a transformers model, or its config.json") from None
    except OSError as error:
        raise Error(f"the config cannot be read: {error.strerror}", str(path)) from None
    except ValueError as error:
        where = f"{path}:{error.lineno}:{error.colno}" if isinstance(error, json.JSONDecodeError) else str(path)
        raise Error(f"the config is no JSON: {getattr(error, 'msg', error)}", where, "is it the model's config.json?") from None
    if not isinstance(config, dict) or not isinstance(config.get("model_type"), str):
        diffusers = isinstance(config, dict) and "_class_name" in config
        what = f"this is a config of diffusers ({config['_class_name']})" if diffusers else "the config names no model_type"
        raise Error(what, str(path), "name the config.json of a transformers model")
    return config


def _model(name: str, config: dict[str, Any], source: str, repository: str) -> Model:
    return Model(
        name=name,
        model_type=config["model_type"],
        architectures=tuple(config.get("architectures") or ()),
        config={key: value for key, value in config.items() if key not in _NOT_SHAPES},
        source=source,
        repository=repository,
        own_code=bool(config.get("auto_map")),
        quantized="quantization_config" in config,
    )


def _near(name: str) -> str:
    names = {id.split("/")[1].lower(): id for id in along()}
    near = difflib.get_close_matches(name.split("/")[-1].lower(), names, 3, 0.5)
    return f"; did you mean {', '.join(names[one] for one in near)}?" if near else "; `gpucast model --list` lists those that come along"


def _from_hub(name: str) -> Path:
    """Downloads config.json, with the user's own settings and cache."""
    try:
        import huggingface_hub
        from huggingface_hub import errors
    except ImportError:
        raise Error(
            f"{name} does not come with gpucast, and huggingface_hub is not installed", "", f"pip install transformers{_near(name)}"
        ) from None
    huggingface_hub.logging.set_verbosity_error()  # it reports each retry
    own_file = "or download its config.json elsewhere and name the file"
    try:
        return Path(huggingface_hub.hf_hub_download(name, "config.json"))
    except errors.GatedRepoError:
        raise Error("this repository is gated", name, f"accept its terms on the hub and log in (hf auth login), {own_file}") from None
    except errors.RepositoryNotFoundError:
        raise Error(
            "the hub has no such repository, or it is private", name, f"check the id, or log in (hf auth login){_near(name)}"
        ) from None
    except errors.EntryNotFoundError as error:
        if isinstance(error, getattr(errors, "LocalEntryNotFoundError", ())):
            raise _no_network(name, own_file) from None
        raise Error("this repository has no config.json", name, "name one of a transformers model") from None
    except (errors.HFValidationError, ValueError):
        raise Error("this is no id of the hub", name, f"ids are like mistralai/Mistral-7B-v0.1{_near(name)}") from None
    except Exception as error:  # of the network, by whichever library the hub's client uses
        raise _no_network(name, own_file, f" ({type(error).__name__})") from None


def _no_network(name: str, own_file: str, why: str = "") -> Error:
    return Error(
        f"the hub cannot be reached{why}, and {name} does not come with gpucast",
        "huggingface.co",
        f"check the network, {own_file}{_near(name)}",
    )
