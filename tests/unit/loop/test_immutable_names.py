"""What the name of a scenario and of a fault case means, pinned.

A name is immutable: rows of two versions of fairtrial are compared by it. Where one of these fails, what the name means
has changed. Give the changed scenario or case a new name (`..._v2`) and pin that beside the old one; change a digest
here only where nobody can have rows under the name, or where a field was added that leaves every meaning as it was.
"""

import hashlib
import json
from dataclasses import asdict

from fairtrial.loop.fault_cases import FAULT_CASES, FaultCase
from fairtrial.loop.scenarios import SCENARIOS, scenario_digest

PINNED_SCENARIOS = {
    "task_loop": "362b77c03aaf3e9d",
    "agent_task_baseline_v1": "6f1fa365d99396c2",
    "agent_task_oak_local_v1": "c58587ed60510321",
    "publication_under_fault_v1": "03b8fac7fbfdc530",
    "parallel_tasks_v1": "b8d2ed4a54b52490",
    "interrupted_publication_after_request_v1": "6050242c7c9237d8",
}
PINNED_CASES = {
    "control": "f5ed5e536ea59a5a",
    "control_fresh": "39708aa0d75e9b63",
    "reply_lost_reused": "e19c49a412b077d3",
    "reply_lost_fresh": "a66404b23208efd3",
    "every_reply_lost": "92450515ee0d80ea",
    "reply_reset": "5ca12918b5dfdde9",
    "reply_cut": "f5200cca6478c6fe",
    "request_lost": "0fc1b8d16cca9b62",
    "request_lost_fresh": "b3b3b03505f7ae18",
    "request_cut": "87d9bdc5fb102e7d",
    "request_reset": "c0f2f7c56d3bcc8a",
    "status_500": "9d93ea62665af9c7",
    "status_503": "1f41195b1c1ef43d",
    "server_down": "202afb35e24aac0f",
    "first_reply_lost": "95201b5a6152795b",
    "request_delayed": "896905df52640dcf",
    "request_throttled": "2a787781e590c782",
    "client_killed": "d9335b8bcef30643",
    "reply_stalled": "96f83cf444ffe3e2",
    "stream_reply_lost": "e9e043f3056ccdec",
    "stream_reply_reset": "e154b77436fcf656",
    "stream_cut": "d3e9b4999cf89580",
    "stream_reset": "34fc7093825e9570",
    "stream_delayed": "7b6107c23624f95b",
    "stream_client_killed": "c5fe0f8d95468e3f",
    "stream_stalled": "aabb9eecb9f6b452",
    "ssh_reply_lost": "1a462917a218aba5",
    "ssh_cut": "b4d6d8f5dc859d72",
    "ssh_reset": "d5593732d4a57b0a",
    "ssh_delayed": "55c668ec6abd0864",
    "server_refuses": "6ca9d6ae8548c5f8",
    "server_killed_before": "3bb80be22e3cf2b6",
    "server_killed_after": "093969f50b4e8cdc",
    "server_killed_at_report": "e27b32f78be67851",
    "rival_first": "9e8b02823e57cac9",
    "rival_forced_over": "76ba4b5ea656760c",
    "rival_forced_over_reply_lost": "28f0829b056d7bb0",
}


def digest(case: FaultCase) -> str:
    return hashlib.sha256(json.dumps(asdict(case), sort_keys=True, default=sorted).encode()).hexdigest()[:16]


def test_a_scenario_means_what_its_name_has_always_meant() -> None:
    assert {name: scenario_digest(scenario)[:16] for name, scenario in SCENARIOS.items()} == PINNED_SCENARIOS


def test_a_fault_case_means_what_its_name_has_always_meant() -> None:
    assert {name: digest(case) for name, case in FAULT_CASES.items()} == PINNED_CASES
