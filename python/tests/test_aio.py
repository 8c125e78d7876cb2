"""asyncio: work that has begun ends, and leaving a transaction cannot be cancelled."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

import safepoint
from conftest import tree_of


async def test_the_same_verbs(shop: Path) -> None:
    before = tree_of(shop)
    async with safepoint.AsyncWorkspace.open(shop) as ws:
        made = await ws.create("tests pass")
        (shop / "notes.txt").write_text("bad")
        assert [change.path for change in await ws.diff()] == ["notes.txt"]
        await ws.rollback(made)
        assert tree_of(shop) == before
        await ws.undo()
        await ws.redo()
        assert (await ws.list())[0] == await ws.show()
        assert (await ws.status()).is_covered and await ws.read("notes.txt") == b"good"
        assert len(await asyncio.gather(*(ws.create(str(number)) for number in range(8)))) == 8
    with pytest.raises(safepoint.UsageError, match="closed"):
        await ws.create()


async def test_awaiting_opens_too(shop: Path) -> None:
    ws = await safepoint.AsyncWorkspace.open(shop)
    assert ws.root == str(shop)
    await ws.close()
    with pytest.raises(RuntimeError, match="not open"):
        safepoint.AsyncWorkspace.open(shop).sync.create()


async def test_transactions(shop: Path) -> None:
    before = tree_of(shop)
    async with safepoint.AsyncWorkspace.open(shop) as ws:
        with pytest.raises(ValueError, match="no"):
            async with ws.transaction("edit"):
                (shop / "notes.txt").write_text("bad")
                raise ValueError("no")
        assert tree_of(shop) == before
        async with ws.transaction() as block:
            (shop / "notes.txt").write_text("bad")
            block.reject("tests fail")
        assert tree_of(shop) == before and block.rejected == "tests fail" and block.rolled_back is not None
        assert await ws.unfinished() == []


async def test_a_cancelled_block_goes_back_even_if_cancelled_again(shop: Path) -> None:
    before = tree_of(shop)
    async with safepoint.AsyncWorkspace.open(shop) as ws:
        inside = asyncio.Event()

        async def agent() -> None:
            async with ws.transaction("edit"):
                (shop / "notes.txt").write_text("bad")
                inside.set()
                await asyncio.sleep(60)

        task = asyncio.create_task(agent())
        await inside.wait()
        task.cancel()
        await asyncio.sleep(0)
        for _ in range(20):
            task.cancel()
            await asyncio.sleep(0.001)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert tree_of(shop) == before and await ws.unfinished() == []


async def test_cancelling_at_the_door_opens_nothing(shop: Path) -> None:
    async with safepoint.AsyncWorkspace.open(shop) as ws:
        entered = False

        async def agent() -> None:
            nonlocal entered
            async with ws.transaction("edit"):
                entered = True

        task = asyncio.create_task(agent())
        await asyncio.sleep(0.002)
        task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            assert not entered
        assert await ws.unfinished() == []
        assert not any(one.pinned for one in await ws.list())


async def test_work_that_has_begun_ends(shop: Path) -> None:
    for number in range(100):
        (shop / f"{number}.bin").write_bytes(os.urandom(20_000))
    async with safepoint.AsyncWorkspace.open(shop) as ws:
        task = asyncio.create_task(ws.create("begun"))
        await asyncio.sleep(0.01)
        task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            pass
        for _ in range(400):
            if [one.label for one in await ws.list()] == ["begun"]:
                break
            await asyncio.sleep(0.05)
        assert [one.label for one in await ws.list()] == ["begun"]
