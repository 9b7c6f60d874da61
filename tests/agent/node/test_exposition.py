"""What is read out of an exporter's page, over all its spellings; and what is refused."""

from __future__ import annotations

import dataclasses
import os

import pytest
from hypothesis import example, given, seed, settings
from hypothesis import strategies as st

from robustrl.node.exposition import BadExposition, PodName, parse
from robustrl_e2e.fake_exporter import IDLE, PROFILING, TENSOR, WORKING, XID, Gpu, Style, render

TRAINER = ("rl", "j-trainer-1")
NAME = PodName(*TRAINER)
PAGE = render([Gpu(0, TRAINER), Gpu(1)])
EXAMPLES = int(os.environ.get("ROBUSTRL_EXAMPLES", "50"))
SEED = int(os.environ.get("ROBUSTRL_SEED", "1"))
any_page = settings(max_examples=2 * EXAMPLES, deadline=None, database=None, print_blob=True)
"""No deadline: a busy machine is slow, and that is no fault of the parser's."""


def test_numbers_come_in_their_units() -> None:
    (gpu,) = parse(render([Gpu(3, TRAINER, {**WORKING, XID: 31})])).gpus
    assert (gpu.gpu, gpu.instance, gpu.pods) == ("GPU-00000003", "", {NAME})
    assert (gpu.tensor_permille, gpu.engine_permille, gpu.memory_permille) == pytest.approx((410, 980, 350))
    assert (gpu.utilization_permille, gpu.power_watts, gpu.temperature_celsius) == (990, 610, 61)
    assert gpu.xid == 31


@pytest.mark.parametrize("host_label", ["Hostname", "hostname"])
@pytest.mark.parametrize("uuid_label", ["UUID", "uuid"])
@pytest.mark.parametrize("prefix", ["", "exported_"])
def test_spellings_of_releases_and_of_prometheus(host_label: str, uuid_label: str, prefix: str) -> None:
    page = parse(render([Gpu(0, TRAINER)], Style(host_label, uuid_label, prefix)))
    assert page.host == "n1"
    assert [gpu.pods for gpu in page.gpus] == [{NAME}], "never the exporter's own pod"


def test_labels_of_the_first_releases() -> None:
    text = PAGE.replace('pod="', 'pod_name="').replace('namespace="', 'pod_namespace="')
    assert parse(text).gpus[0].pods == {NAME}


@pytest.mark.parametrize("empty_labels", [False, True])
def test_gpus_of_no_pod(empty_labels: bool) -> None:
    (gpu,) = parse(render([Gpu(0)], Style(empty_labels=empty_labels))).gpus
    assert gpu.pods == frozenset()


def test_a_card_without_profiling_counters() -> None:
    """Absent is not zero."""
    values = {name: value for name, value in WORKING.items() if name not in PROFILING}
    (gpu,) = parse(render([Gpu(0, TRAINER, values)])).gpus
    assert (gpu.tensor_permille, gpu.engine_permille, gpu.memory_permille) == (None, None, None)
    assert gpu.power_watts == 610
    (idle,) = parse(render([Gpu(0, TRAINER, IDLE)])).gpus
    assert idle.tensor_permille == 0


def test_instances_of_one_gpu_are_apart() -> None:
    gpus = [Gpu(0, ("rl", f"p{n}"), {**WORKING, TENSOR: n / 10}, instance=str(n)) for n in (1, 2, 3)]
    page = parse(render([*gpus, Gpu(0, values={XID: 79})]))
    assert [(g.gpu, g.instance) for g in page.gpus] == [("GPU-00000000", i) for i in ("", "1", "2", "3")]
    assert [g.tensor_permille for g in page.gpus] == [None, *map(pytest.approx, (100, 200, 300))]
    assert [len(g.pods) for g in page.gpus] == [0, 1, 1, 1]


def test_a_gpu_shared_by_pods_is_everyones() -> None:
    (gpu,) = parse(render([Gpu(0, ("rl", "a")), Gpu(0, ("rl", "b"))])).gpus
    assert gpu.pods == {PodName("rl", "a"), PodName("rl", "b")}


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf", "-0.5", "7.000000", "1e300"])
def test_a_number_that_cannot_be_is_none(value: str) -> None:
    text = "".join(
        f"{line.rpartition(' ')[0]} {value}\n" if line.startswith((TENSOR, XID)) else f"{line}\n"
        for line in PAGE.splitlines()
    )
    for gpu in parse(text).gpus:
        assert gpu.tensor_permille is None
        assert gpu.xid == (7 if value == "7.000000" else None)
        assert gpu.power_watts == 610, "the rest of the page holds"


def test_other_families_are_passed_over() -> None:
    links = 'DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL{nvlink="3",gpu_uuid="GPU-00000000",model_name="H100"} 12\n'
    go = "# TYPE go_goroutines gauge\ngo_goroutines 12\n# TYPE process_start_time_seconds gauge\n"
    page = parse(links + go + "process_start_time_seconds 1.7e9\n" + PAGE)
    assert len(page.gpus) == 2
    assert page.started == 1.7e9
    assert parse(PAGE).started is None
    assert parse("process_start_time_seconds NaN\n" + PAGE).started is None, "which differs from itself each time"


@pytest.mark.parametrize("labels", [f'UUID="{"G" * 129}"', f'UUID="GPU-1",GPU_I_ID="{"1" * 17}"'])
def test_names_that_no_gpu_has_and_no_report_can_hold_are_passed_over(labels: str) -> None:
    assert parse(f"DCGM_FI_DEV_GPU_TEMP{{{labels}}} 40\n" + PAGE) == parse(PAGE)


def test_an_empty_page_shows_nothing() -> None:
    assert parse("").gpus == ()


@pytest.mark.parametrize(
    "text",
    ["<html>502 Bad Gateway</html>\n", '{"error": "no"}\n', f'{TENSOR}{{UUID="x" 0.1\n', f'{TENSOR}{{UUID="x"}}\n',
     f'{TENSOR}{{UUID="x"}} many\n', "\x00\x01\n", "# TYPE \n# HELP\n}\n", PAGE.rstrip("\n"), PAGE[:-40], PAGE[:1000]],
)  # fmt: skip
def test_what_no_exporter_writes_is_refused(text: str) -> None:
    with pytest.raises(BadExposition) as refused:
        parse(text)
    assert len(str(refused.value)) > 10, "the reason is said"


@seed(SEED)
@any_page
@given(st.text(max_size=300))
@example("a{b=c}\n")
def test_no_text_brings_the_parser_down(text: str) -> None:
    for page in (text, text + "\n", PAGE + text + "\n"):
        try:
            parse(page)
        except BadExposition:
            continue


@seed(SEED)
@any_page
@given(st.integers(0, len(PAGE) - 2), st.characters())
def test_a_damaged_page_gives_an_error_or_sane_numbers(position: int, other: str) -> None:
    try:
        page = parse(PAGE[:position] + other + PAGE[position + 1 :])
    except BadExposition:
        return
    for gpu in page.gpus:
        permilles = (gpu.tensor_permille, gpu.engine_permille, gpu.memory_permille)
        assert all(value is None or 0 <= value <= 1000 for value in permilles)
        assert all(isinstance(getattr(gpu, each.name), int | float | str | frozenset | None)
                   for each in dataclasses.fields(gpu))  # fmt: skip


@seed(SEED)
@any_page
@given(st.integers(1, len(PAGE) - 1))
def test_a_page_cut_short_is_refused_unless_it_ends_with_a_line(length: int) -> None:
    if PAGE[:length].endswith("\n"):
        parse(PAGE[:length])
        return
    with pytest.raises(BadExposition):
        parse(PAGE[:length])
