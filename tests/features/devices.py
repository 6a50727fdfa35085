# SPDX-License-Identifier: Apache-2.0
"""Checks of devices: mesh graph descriptors, and device_config with its axes, ids and errors."""
import os

from feature import feature
from training import bits, expect, gpt, launched, same

HOME = {"TT_METAL_HOME": "home"}
# Where tt-metal has its descriptors.
CUSTOM = "home/tests/tt_metal/tt_fabric/custom_mesh_descriptors"
STANDARD = "home/tt_metal/fabric/mesh_graph_descriptors"
MULTIHOST = "home/tt-train/sources/examples/python/multihost/demo/configurations"
AXES_ERROR = "error: The number of parallelization axes must be equal to the number of mesh shape dimensions\n"


def descriptor(*dims, hosts=None, name="M0", arch="WORMHOLE_B0", policy="RELAXED"):
    """A mesh graph descriptor, as the documentation of tt-train writes them."""
    return (f'mesh_descriptors {{\n  name: "{name}"\n  arch: {arch}\n'
            f"  device_topology {{ dims: {list(dims)} }}\n"
            f"  host_topology   {{ dims: {list(hosts or [1] * len(dims))} }}\n"
            f"  channels {{ count: 4 policy: {policy} }}\n}}\n\n"
            f'top_level_instance {{ mesh {{ mesh_descriptor: "{name}" mesh_id: 0 }} }}\n')


def config(shape, **keys):
    """device_config of a mesh shape: `ddp=True` is enable_ddp."""
    words = {f"enable_{key}" if key in ("ddp", "fsdp", "cp", "tp", "pp") else key: value for key, value in keys.items()}
    return {"device_config": {"mesh_shape": shape, **words}}


def wide(c):
    """The small GPT with 32 heads and samples, for meshes of up to 32 ranks."""
    gpt(c)
    text = c.read("run.yaml").replace("num_heads: 4, embedding_dim: 32", "num_heads: 32, embedding_dim: 64")
    c.write("run.yaml", text.replace("batch_size: 8", "batch_size: 32").replace("{batch: 8, tp: 4}", "{}"))


@feature("Strategies enable_ddp, enable_tp and enable_pp in device_config, alone and combined")
def strategies(c):
    gpt(c)
    pp = {"pipeline__microbatches": 4}
    meshes = (([2], {"ddp": True}, "DP axis 0 (size 2)", {}), ([2], {"tp": True}, "TP axis 0 (size 2)", {}),
              ([2], {"pp": True}, "PP axis 0 (size 2)", pp),
              ([2, 4], {"ddp": True, "tp": True}, "DP axis 0 (size 2), TP axis 1 (size 4)", {}),
              ([2, 2, 2], {"ddp": True, "tp": True, "pp": True},
               "DP axis 0 (size 2), TP axis 1 (size 2), PP axis 2 (size 2)", pp))
    runs = [bits(c)]
    for shape, flags, context, more in meshes:
        keys = {**config(shape, **flags), **more}
        c.with_keys("check", **keys).says(f"\nParallelismContext: {context}\n")
        runs.append(bits(c, **keys))
    same("losses, norms and weights", runs)


@feature("Mesh graph descriptors are read with protobuf's text grammar; unknown fields have line:col")
def text_grammar(c):
    c.write("odd.textproto", """\
# a comment
mesh_descriptors: < name: 'M' "0" arch: BLACKHOLE;
  device_topology { dims: 0x2, dims: [4] dim_types: RING, dim_types: 1 }  # dims by repetition
  host_topology { dims: [ 1, 1 ] }
  channels { policy: STRICT count: 04 }
>
top_level_instance { mesh { mesh_descriptor: "M0", mesh_id: 0 } };
""")
    c.run("inspect", "--mesh", "odd.textproto").says(
        "mesh 'M0'\n", "  shape     2 × 4  (ring × line)\n", "  arch      BLACKHOLE\n", "  devices   8\n",
        "  hosts     1 × 1\n", "  links     4 per pair of neighbours, STRICT\n")
    c.write("bad.textproto", descriptor(1, 8).replace("host_topology  ", "host_toplogy"))
    c.run("inspect", "--mesh", "bad.textproto", code=2).says(
        "bad.textproto:5:3: error: unknown field 'host_toplogy' in 'mesh_descriptors[0]'\n",
        "= did you mean 'host_topology'?\n")


@feature("TT_MESH_GRAPH_DESC_PATH selects the descriptor, a key or --mesh overrides; source printed")
def source_of_descriptor(c):
    wide(c)
    for name in ("option", "key", "environment"):
        c.write(f"{name}.textproto", descriptor(1, 8))
    auto = f"{CUSTOM}/t3k_1x8_mesh_graph_descriptor.textproto"
    c.write(auto, descriptor(1, 8))
    env = {**HOME, "TT_MESH_GRAPH_DESC_PATH": "environment.textproto"}
    mesh, key = config([8], ddp=True), config([8], ddp=True, mesh_graph_descriptor="key.textproto")
    c.with_keys("inspect", env=HOME, **mesh).says(f"mesh: {auto} (for 8 devices, from TT_METAL_HOME)\n")
    c.with_keys("inspect", env=env, **mesh).says("mesh: environment.textproto (from TT_MESH_GRAPH_DESC_PATH)\n")
    c.with_keys("inspect", env=env, **key).says("key.textproto (from device_config.mesh_graph_descriptor)\n")
    c.with_keys("inspect", "--mesh", "option.textproto", env=env, **key).says(
        "mesh: option.textproto (from --mesh)\n")
    c.with_keys("check", env=env, **mesh).says(
        "descriptor: mesh [1, 8] fits; environment.textproto (from TT_MESH_GRAPH_DESC_PATH)\n")


@feature("Descriptors are searched in TT_METAL_HOME: custom, standard, multihost configurations")
def search_order(c):
    wide(c)
    for folder, links in ((CUSTOM, 1), (STANDARD, 2), (MULTIHOST, 3)):
        c.write(f"{folder}/all.textproto", descriptor(1, 8).replace("count: 4", f"count: {links}"))
        c.write(f"{folder}/of{links}.textproto", descriptor(1, 8))
    named = [("all", CUSTOM), ("of1", CUSTOM), ("of2", STANDARD), ("of3", MULTIHOST)]
    for name, folder in named:
        c.with_keys("inspect", env=HOME, **config([8], ddp=True, mesh_graph_descriptor=f"{name}.textproto")).says(
            f"mesh: {folder}/{name}.textproto (from device_config.mesh_graph_descriptor)\n")
        c.run("inspect", "--mesh", f"{name}.textproto", env=HOME).matches(rf"^file +{folder}/{name}.textproto$")
    c.run("inspect", "--mesh", "galaxy_4x8.textproto").says("mesh 'GALAXY'\n", "  shape     4 × 8  (ring × ring)\n")


@feature("8 or 32 devices select the T3K 1x8 or Galaxy 1x32 descriptor; other counts are an error")
def selected_by_count(c):
    wide(c)
    for count, name in ((8, "t3k_1x8"), (32, "galaxy_1x32")):
        file = f"{name}_mesh_graph_descriptor.textproto"
        keys = config([count], ddp=True, mesh_graph_descriptor="auto")
        c.with_keys("inspect", **keys).matches(
            rf"^mesh: /.*/mesh_descriptors/{file} \(device_config.mesh_graph_descriptor: auto, for {count} devices\)$")
        c.write(f"{CUSTOM}/{file}", descriptor(1, count))
        c.with_keys("inspect", env=HOME, **keys).says(f"mesh: {CUSTOM}/{file} (device_config.")
        # where no descriptors are shipped, the variable is needed
        os.makedirs(os.path.join(c.folder, "nowhere"), exist_ok=True)
        c.with_keys("inspect", env={"TESSERA_SHARE": "nowhere"}, code=2, **keys).says(
            f"error: TT_METAL_HOME is not set, but the mesh descriptor '{file}' ")
    c.with_keys("inspect", code=2, **config([16], ddp=True, mesh_graph_descriptor="auto")).says(
        "error: no mesh descriptor is chosen by itself for 16 devices ",
        "= 8 devices become t3k_1x8_mesh_graph_descriptor.textproto\n",
        "= 32 devices become galaxy_1x32_mesh_graph_descriptor.textproto\n")


@feature("Descriptor format: architectures, topologies, channel policies, a defined top instance")
def descriptor_format(c):
    for arch in ("WORMHOLE_B0", "BLACKHOLE"):
        for policy in ("RELAXED", "STRICT"):
            c.write("m.textproto", descriptor(1, 32, arch=arch, policy=policy))
            c.run("inspect", "--mesh", "m.textproto").says(
                "file        m.textproto\nmesh 'M0'\n  shape     1 × 32  (line × line)\n"
                f"  arch      {arch}\n  devices   32\n  hosts     1 × 1\n"
                f"  links     4 per pair of neighbours, {policy}\n")
    good = descriptor(1, 8)
    for old, new, place, error in (
            ("WORMHOLE_B0", "WORMHOLE", "3:9", "unknown Architecture 'WORMHOLE' in field 'arch'"),
            ("RELAXED", "LOOSE", "6:31", "unknown Policy 'LOOSE' in field 'policy'"),
            ('mesh_descriptor: "M0"', 'mesh_descriptor: "M1"', "9:46", "mesh descriptor 'M1' not found")):
        c.write("m.textproto", good.replace(old, new))
        c.run("inspect", "--mesh", "m.textproto", code=2).says(f"m.textproto:{place}: error: {error}\n")


@feature("A mesh shape other than the descriptor's is an error at the start, never a hang")
def shape_match(c):
    wide(c)
    c.write("m.textproto", descriptor(4, 8))
    mesh = ("--mesh", "m.textproto")
    both = {"ddp": True, "tp": True}
    c.with_keys("check", *mesh, **config([4, 8], **both)).says("descriptor: mesh [4, 8] fits; m.textproto ")
    for command in ("check", "train"):
        for shape, flags in (([1, 32], {"tp": True}), ([32, 1], {"ddp": True}), ([8, 4], both)):
            c.with_keys(command, *mesh, code=2, **config(shape, **flags)).says(
                f"error: mesh_shape {shape} (32 devices) is not the descriptor's mesh [4, 8] (32 devices)\n",
                "= the shape that fits: [4, 8]; other shapes need a descriptor of one line, [1, 32]\n")
    c.write("m.textproto", descriptor(1, 32))
    for shape, flags in (([4, 8], both), ([8, 4], both), ([1, 32], {"tp": True}), ([32, 1], {"ddp": True})):
        c.with_keys("check", *mesh, **config(shape, **flags)).says("descriptor: mesh [1, 32] fits; ")


@feature("mesh_shape must match the number of devices: fewer or more is an error with both counts")
def device_count(c):
    wide(c)
    both = {"ddp": True, "tp": True}
    for devices, shape, hint in ((8, [4, 8], "[1, 8], [2, 4], [4, 2], [8, 1]\n"),
                                 (32, [2, 4], "[1, 32], [2, 16], [4, 8], [8, 4], [16, 2], [32, 1]; or name the ")):
        c.write("m.textproto", descriptor(1, devices))
        needed = shape[0] * shape[1]
        c.with_keys("check", "--mesh", "m.textproto", code=2, **config(shape, **both)).says(
            f"error: mesh_shape {shape} needs {needed} devices, but the descriptor's mesh [1, {devices}] has "
            f"{devices}\n", f"= shapes that fit: {hint}")


@feature("host_topology is the number of hosts: another number of hosts of the processes is an error")
def host_topology(c):
    wide(c)
    c.write("m.textproto", descriptor(4, 8, hosts=(4, 1), arch="CUDA"))
    c.run("inspect", "--mesh", "m.textproto").says("  hosts     4 × 1, 8 devices each\n")
    c.write("m.textproto", descriptor(2, 2, hosts=(1, 2), arch="CPU"))
    keys = config([2, 2], ddp=True, tp=True)
    c.with_keys("check", "--mesh", "m.textproto", **keys).matches(r"note: .*\b2 hosts\b")
    sets = ["--set", "device_config={enable_ddp: true, enable_tp: true, mesh_shape: [2, 2]}"]
    said = launched(c, 2, "--config", "run.yaml", "--mesh", "m.textproto", *sets, code=None)
    if said:
        expect(said.code != 0, "two processes of one host run on a descriptor of two hosts")
        said.says("error: the descriptor has 2 hosts, and the 2 processes of this job are on 1: ")
    c.write("m.textproto", descriptor(2, 3, hosts=(1, 2), arch="CPU"))
    c.run("inspect", "--mesh", "m.textproto", code=2).says(
        "error: device topology dimensions must be divisible by host topology dimensions: 3 by 2 in mesh descriptor")


@feature("device_config: strategies off, no ids by default; mesh_shape's product is the devices used")
def device_config(c):
    gpt(c)
    said = c.with_keys("check", "--print-config")
    for key in ("enable_tp", "enable_ddp", "enable_pp"):
        said.matches(rf"^  {key}: false  # default$")
    said.says("  mesh_shape: []  # default\n", "  device_ids: []  # default\n")
    c.with_keys("check").says("mesh_shape: [1], 1 rank\ndevices: 1 of 1\n")
    c.with_keys("check", **config([2, 4], ddp=True, tp=True)).says("mesh_shape: [2, 4], 8 ranks\ndevices: 8 of 8\n")
    ids = config([2], ddp=True, device_ids=[3, 5])
    c.write("m.textproto", descriptor(1, 8))
    c.with_keys("check", "--mesh", "m.textproto", **ids).says(
        "mesh_shape: [2], 2 ranks\ndevices: 2 of 8, those that device_ids names\n")


@feature("Order of opening: configuration, mesh shape, devices, descriptor, context, model")
def order_of_opening(c):
    gpt(c)
    lines = c.with_keys("train", **config([2, 2], ddp=True, tp=True)).out.splitlines()
    words = ["mesh_shape:", "devices:", "descriptor:", "ParallelismContext:", "parameters:", "batches:", "recipe:"]
    expect([line.split()[0] for line in lines[:7]] == words, f"the start prints {lines[:8]}")
    # an error of a phase ends the start before the next
    said = c.with_keys("train", code=2, **config([2, 2], ddp=True, tp="maybe"))
    expect(not said.out and "enable_tp" in said.err, f"an error of parsing is reported after a phase: {said.text}")
    said = c.with_keys("train", code=2, **config([2, 2], ddp=True))
    said.says(AXES_ERROR)
    expect(not said.out, f"an error of the mesh shape is reported after a phase: {said.out}")
    c.with_keys("check", "--dump", "placement,mesh,graph,groups", **config([2, 2], ddp=True, tp=True)).matches(
        r"^dp × tp mesh, 2 × 2\n(.*\n)*dp groups: 2 of 2\n(.*\n)*.*wte.*\n(.*\n)*.*wte.* tp:shard\(0\)")


@feature("device_ids use exactly the named devices; a repeated or unknown id is a located error")
def device_ids(c):
    gpt(c)
    c.write("m.textproto", descriptor(1, 8))
    mesh = ("--mesh", "m.textproto")
    said = c.with_keys("inspect", *mesh, **config([4], ddp=True, device_ids=[7, 5, 3, 1]))
    said.says(*(f"  rank {rank}: dp {rank}, device {device}\n" for rank, device in enumerate((7, 5, 3, 1))))
    for ids, error in (([0, 1, 2, 1], "'device_ids' names device 1 twice"),
                       ([0, 1, 2], "device_ids names 3 devices, but mesh_shape [4] needs 4"),
                       ([0, 1, 2, 8], "Physical chip id 8 not found in control plane chip mapping. "
                                      "The descriptor's mesh [1, 8] has devices 0 to 7")):
        c.with_keys("inspect", *mesh, code=2, **config([4], ddp=True, device_ids=ids)).says(f"error: {error}\n")


@feature("Axes follow the strategies: DDP is axis 0, TP the next; [1, 32] with TP alone is tp = 32")
def axis_rule(c):
    wide(c)
    for shape, flags, context in (([4, 8], {"ddp": True, "tp": True}, "DP axis 0 (size 4), TP axis 1 (size 8)"),
                                  ([1, 32], {"tp": True}, "TP axis 0 (size 32)"),
                                  ([32, 1], {"ddp": True}, "DP axis 0 (size 32)"),
                                  ([8], {"tp": True}, "TP axis 0 (size 8)"), ([8], {"ddp": True}, "DP axis 0 (size 8)"),
                                  ([1, 1], {}, "a single rank, no axes")):
        c.with_keys("check", **config(shape, **flags)).says(f"\nParallelismContext: {context}\n")


@feature("Sizes of the DP and TP groups: inspect prints each axis, its size and its groups")
def axis_sizes(c):
    wide(c)
    said = c.with_keys("inspect", **config([4, 8], ddp=True, tp=True))
    said.says("dp × tp mesh, 4 × 8\nranks: 32\naxes:\n"
              "  dp: size 4, axis 0, 8 groups\n  tp: size 8, axis 1, 4 groups\n")
    said.says(*(f"  rank {rank}: dp {rank // 8}, tp {rank % 8}\n" for rank in range(32)))
    said.says("dp groups: 8 of 4\n" + "".join(f"  [{i}, {i + 8}, {i + 16}, {i + 24}]\n" for i in range(8)))
    said.says("tp groups: 4 of 8\n" + "".join(f"  {list(range(i, i + 8))}\n" for i in (0, 8, 16, 24)))


@feature("As many strategies as mesh dimensions, or tt-train's error with the enabled strategies")
def number_of_axes(c):
    wide(c)
    for shape, flags, enabled in (([4, 8], {"ddp": True}, "ddp (1)"), ([2, 2], {}, "none (0)"),
                                  ([8], {"ddp": True, "tp": True}, "ddp, tp (2)"),
                                  ([2, 2, 2], {"ddp": True, "tp": True}, "ddp, tp (2)")):
        count = f"{len(shape)} dimension" + "s" * (len(shape) > 1)
        c.with_keys("check", code=2, **config(shape, **flags)).says(
            AXES_ERROR, f"= enabled: {enabled}; mesh_shape {shape} has {count}\n")


@feature("enable_pp takes the next mesh dimension after TP: [dp, tp, pp]; documented")
def pipeline_axis(c):
    gpt(c)
    keys = {**config([2, 2, 2], ddp=True, tp=True, pp=True), "pipeline__microbatches": 2}
    said = c.with_keys("inspect", **keys).says("dp × tp × pp mesh, 2 × 2 × 2\n")
    said.says(*(f"  rank {r}: dp {r // 4}, tp {r // 2 % 2}, pp {r % 2}\n" for r in range(8)))
    same("losses, norms and weights", [bits(c), bits(c, **keys)])
    with open(os.path.join(c.source_root, "docs", "parallelism.md")) as f:
        expect("ddp, fsdp, cp, tp,\npp" in f.read(), "docs/parallelism.md does not document the order of the axes")


@feature("On a GPU the linear layers of fp8 are quantised and multiplied on the device")
def fp8_on_a_gpu(c):
    gpt(c)
    keys = {"device_config__device": "cuda", "training_config__precision": "fp8"}
    text = c.with_keys("check", "--dump", "program", **keys)
    for op in ("linear", "linear_dx", "linear_dw"):
        text.matches(rf"^ +\d+ +{op} .* in fp8")
    text.never_says("on the host")
    text.never_says("the host computes")
    launches = c.with_keys("trace", "--emit", "tile-ir", **keys)
    for op in ("linear", "linear_dx", "linear_dw"):
        launches.matches(rf"^ +\d+ +\w+ +{op} .*  fp8_quantize  .*\n( .*  fp8_quantize\n)? .*  fp8_gemm \d+×\d+×\d+")


@feature("On a GPU the linear layers of experts of fp8 are quantised, and multiplied in one launch for all experts")
def fp8_experts_on_a_gpu(c):
    gpt(c)
    keys = {"device_config__device": "cuda", "training_config__precision": "fp8", "transformer_config__model_type": "mixtral",
            "transformer_config__num_groups": 4, "transformer_config__dropout_prob": 0.0, "transformer_config__num_experts": 4,
            "transformer_config__num_experts_per_token": 2}
    text = c.with_keys("check", "--dump", "program", **keys)
    launches = c.with_keys("trace", "--emit", "tile-ir", **keys)
    for op in ("expert_linear", "expert_linear_dx", "expert_linear_dw"):
        text.matches(rf"^ +\d+ +{op} +in fp8")
        launches.matches(rf"^ +\d+ +\w+ +{op} .*  expert_segments  .*\n( .*  fp8_quantize\n){{2}} .*  expert_gemm_fp8 \d+×\d+×\d+")
    text.never_says("on the host")
    text.never_says("the host computes")


@feature("On a GPU attention with soft caps and heads of 256 runs on the tensor cores, over sequences and over their units")
def wide_attention_on_a_gpu(c):
    gpt(c)
    keys = {"device_config__device": "cuda", "training_config__precision": "bf16", "transformer_config__model_type": "gemma2",
            "transformer_config__head_dim": 256, "transformer_config__num_groups": 4, "transformer_config__dropout_prob": 0.0,
            "transformer_config__attention_soft_cap": 20.0}
    whole = c.with_keys("trace", "--emit", "tile-ir", **keys)
    for name, tile in (("forward", "64×32×256"), ("dkv", "64×16×256"), ("dq", "64×16×256")):
        whole.matches(rf"  attention_tensor_{name} {tile}")
    units = c.with_keys("trace", "--emit", "tile-ir", numerics__units__sequence=2, **keys)
    units.matches(r"  ring_walk 64×32×256")
    units.matches(r"  ring_walk 64×16×256")
    c.with_keys("check", "--dump", "program", **keys).never_says("on the host")


@feature("TESSERA_CUDA_WGMMA: attention uses wgmma, but not over units of the sequence; GPUs that are not sm_90 are refused")
def wgmma_on_a_gpu(c):
    gpt(c)
    keys = {"device_config__device": "cuda", "training_config__precision": "bf16", "transformer_config__model_type": "llama",
            "transformer_config__head_dim": 64, "transformer_config__num_groups": 4, "transformer_config__dropout_prob": 0.0}
    for value, forward, backward in (("1", "attention_wgmma_forward 128×128×64", "attention_wgmma_backward 128×64×64"),
                                     ("0", "attention_tensor_forward 128×64×64", "attention_tensor_dkv ")):
        launches = c.with_keys("trace", "--emit", "tile-ir", env={"TESSERA_CUDA_WGMMA": value}, **keys)
        launches.matches("  " + forward)
        launches.matches("  " + backward)
    ring = c.with_keys("trace", "--emit", "tile-ir", env={"TESSERA_CUDA_WGMMA": "1"}, numerics__units__sequence=2, **keys)
    ring.never_says("attention_wgmma")
    emulated = os.path.join(os.path.dirname(c.program), "tests", "cuda")
    if os.path.exists(os.path.join(emulated, "libtessera-cuda.so")):
        env = {"TESSERA_CUDA_WGMMA": "1", "TESSERA_PLUGIN_PATH": emulated, "EMULATED_CUDA": "arch=80"}
        c.with_keys("train", code=None, env=env, **keys).says("sm_80: TESSERA_CUDA_WGMMA needs a GPU of sm_90")
