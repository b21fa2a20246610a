"""Serve the translations of a run over HTTP."""

import asyncio
import logging
import os
import threading
from typing import Any

from omegaconf import DictConfig, OmegaConf

from headcount.errors import InputError, need
from headcount.settings import fits, typed

logger = logging.getLogger("headcount.serve")

LIMITS = ("max_body", "max_texts", "max_pieces", "batch_pieces", "max_waiting")


def check(config: DictConfig) -> None:
    """Raises InputError, with a line for each, for settings that cannot be used."""
    given: Any = OmegaConf.to_container(config)
    wrong = [
        f"{name}={typed(given[name])}: must be a whole number, 1 or more"
        for name in (*LIMITS, "max_connections")
        if not fits(given[name], int) or given[name] < 1
    ]
    if not fits(given["timeout"], float) or not given["timeout"] > 0:
        wrong.append(f"timeout={typed(given['timeout'])}: must be a number of seconds, more than 0")
    if not isinstance(given["host"], str):
        wrong.append(f"host={typed(given['host'])}: must be text, such as 127.0.0.1")
    if not fits(given["port"], int) or not 0 <= given["port"] < 2**16:
        wrong.append(f"port={typed(given['port'])}: must be a whole number from 0 to 65535")
    if wrong:
        raise InputError("\n".join(wrong))


def run(config: DictConfig) -> None:
    need("serve")
    from headcount.export.chosen import chosen_engine  # here, because --help does not need these
    from headcount.machine import use_threads
    from headcount.run.opened import ensemble, open_runs
    from headcount.serve.app import Limits, application
    from headcount.serve.batching import THREAD
    from headcount.serve.server import listen, make_server

    check(config)
    use_threads(config.threads)
    with_engine = chosen_engine(config)
    runs = open_runs(config)
    opened = with_engine(ensemble(list(runs.values())))
    source, target = opened.languages
    name = " + ".join(runs)
    app = application(
        opened.translator,
        {"run": name, "source": source, "target": target},
        Limits(**{limit: config[limit] for limit in LIMITS}),
    )
    with listen(config.host, config.port) as listener:
        host, port = listener.getsockname()[:2]
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        logger.info("%s: %s to %s on http://%s (Ctrl-C ends)", name, source, target, address)
        asyncio.run(make_server(app, config.timeout, config.max_connections).serve([listener]))
    if any(thread.name.startswith(THREAD) for thread in threading.enumerate()):
        os._exit(0)  # in a batch that is for nobody any more; Python would wait for its end
