"""The configurations that chapter 19 offers to copy: accelerate loads its own."""

import json
import re

import pytest
import yaml
from lab_files import ROOT

PAGE = (ROOT / "book" / "19_beyond_one_card.md").read_text(encoding="utf-8")
DROPPED = {"fsdp_sharding_strategy", "fsdp_backward_prefetch"}
DROPPED |= {"fsdp_sync_module_states", "fsdp_use_orig_params"}


def block(kind: str) -> str:
    """The one block of that language on the page."""
    (found,) = re.findall(rf"```{kind}\n(.*?)```", PAGE, re.DOTALL)
    return found


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "fsdp2.yaml"
    path.write_text(block("yaml"))
    return path


def test_accelerate_loads_its_configuration(config, monkeypatch):
    from accelerate.commands.launch import _validate_launch_command, launch_command_parser
    from accelerate.utils import FullyShardedDataParallelPlugin
    from accelerate.utils.launch import prepare_multi_gpu_env

    parser = launch_command_parser()
    asked = yaml.safe_load(block("yaml"))["fsdp_config"]
    known = {action.dest for action in parser._actions}
    assert asked.keys() <= known - DROPPED, "its loader lets an unknown fsdp_ key pass"
    args = parser.parse_args(["--config_file", str(config), "train.py"])
    args, *_ = _validate_launch_command(args)
    assert (args.use_fsdp, args.num_processes, args.mixed_precision) == (True, 2, "bf16")
    for name, value in prepare_multi_gpu_env(args).items():
        if name.startswith("FSDP"):
            monkeypatch.setenv(name, value)
    plugin = FullyShardedDataParallelPlugin()
    assert (plugin.fsdp_version, plugin.reshard_after_forward) == (2, True)
    assert plugin.transformer_cls_names_to_wrap == ["LlamaDecoderLayer"]
    assert plugin.activation_checkpointing
    assert plugin.cpu_ram_efficient_loading
    assert plugin.state_dict_type.name == "SHARDED_STATE_DICT"


def test_accelerate_refuses_a_misspelt_key(config):
    from accelerate.commands.config.config_args import load_config_from_file

    config.write_text(config.read_text().replace("num_machines", "num_machine"))
    with pytest.raises(ValueError, match="num_machine"):
        load_config_from_file(str(config))


def test_the_layer_that_is_gathered_exists():
    from transformers import AutoModelForCausalLM, LlamaConfig

    sizes = {"hidden_size": 64, "intermediate_size": 64, "num_attention_heads": 1}
    model = AutoModelForCausalLM.from_config(LlamaConfig(num_hidden_layers=1, **sizes))
    wrapped = yaml.safe_load(block("yaml"))["fsdp_config"]
    name = wrapped["fsdp_transformer_layer_cls_to_wrap"]
    assert type(model.model.layers[0]).__name__ == name


def test_each_key_stands_in_the_table_of_what_it_costs():
    """Those that say only where and how many machines cost nothing."""
    told = set(re.findall(r'\["`(\w+)`"', PAGE))
    free = {"compute_environment", "distributed_type", "num_machines", "fsdp_config"}
    asked = yaml.safe_load(block("yaml"))
    keys = {*asked, *asked["fsdp_config"]} - free
    deep = json.loads(block("json"))
    keys |= {*deep, *deep["zero_optimization"]} - {"zero_optimization"}
    assert keys <= told, keys - told
    assert told - keys == set(), "a row without a key"
