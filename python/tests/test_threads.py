"""Threads and signals: launches on the interpreter run without the interpreter lock of Python, and can be ended."""

import os
import signal
import threading
import time

import numpy
import pytest
from conftest import aligned

import tilusvm

LONG = """
.vasm 3
.kernel long(turns: i32, x: global f32[32])
.warps 1
.grid 1
    for %i = 0 to turns
        store-global x[0], load-global(x[0], [32]) + 1.0
    end
.end
"""
FOR_EVER = 2**31 - 1


@pytest.fixture(scope="module")
def long():
    return tilusvm.assemble(LONG)["long"]


def test_many_threads(axpy):
    wrong = []

    def work(number):
        x, y = aligned(512, numpy.float32, number), aligned(512, numpy.float32)
        for turn in range(20):
            axpy(512, 1.0, x, y)
            if not (y == number * (turn + 1)).all():
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_threads_get_one_program():
    found = []
    barrier = threading.Barrier(8)

    def work():
        barrier.wait()
        found.append(tilusvm.program("vector_add", T="bf16"))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8 and all(program is found[0] for program in found)


def test_errors_are_the_threads_own(axpy):
    messages = {}

    def work(n):
        for _ in range(20):
            with pytest.raises(tilusvm.ArgumentError) as error:
                axpy(n, 1.0, aligned(1, "f4"), aligned(1, "f4"))
            messages.setdefault(n, set()).add(str(error.value))

    threads = [threading.Thread(target=work, args=(n,)) for n in (10, 20, 30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {n: len(found) for n, found in messages.items()} == {10: 1, 20: 1, 30: 1}
    assert all(f"f32[{n}]" in next(iter(found)) for n, found in messages.items())


def test_cancel_from_another_thread(long):
    started = threading.Event()

    def end_it():
        started.wait()
        while not done.is_set():  # a launch that has not begun does not hear it
            tilusvm.cancel()
            done.wait(0.02)

    done = threading.Event()
    other = threading.Thread(target=end_it)
    other.start()
    started.set()
    with pytest.raises(tilusvm.CancelledError):
        long(FOR_EVER, aligned(32, numpy.float32))
    done.set()
    other.join()


def test_other_threads_run_meanwhile(long):
    turns = []
    done = threading.Event()

    def count():
        while not done.is_set() and len(turns) < 100:
            turns.append(None)
            time.sleep(0)
        tilusvm.cancel()
        while not done.wait(0.02):
            tilusvm.cancel()

    other = threading.Thread(target=count)
    other.start()
    with pytest.raises(tilusvm.CancelledError):
        long(FOR_EVER, aligned(32, numpy.float32))
    done.set()
    other.join()
    assert len(turns) == 100


def test_control_c(long):
    timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
    old = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
    try:
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            long(FOR_EVER, aligned(32, numpy.float32))
        timer.join()
    finally:
        signal.signal(signal.SIGINT, old)
    x = aligned(32, numpy.float32)
    long(3, x)
    assert (x == 3).all()


def test_a_handler_that_returns_lets_it_go_on(axpy, long):
    heard = []
    old = signal.signal(signal.SIGALRM, lambda *_: heard.append(None) or tilusvm.cancel())
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(tilusvm.CancelledError):
            long(FOR_EVER, aligned(32, numpy.float32))
    finally:
        signal.signal(signal.SIGALRM, old)
    assert len(heard) == 1


def test_after_fork(axpy, vectors):
    axpy(1000, 3.0, *vectors)
    child = os.fork()
    if not child:
        code = 1
        try:
            axpy(1000, 3.0, *vectors)
            code = 0 if (vectors[1] == numpy.arange(1000) * 6 + 2).all() else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
