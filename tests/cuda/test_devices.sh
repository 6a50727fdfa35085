#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The program on devices of a plugin whose devices are emulated (emulated/cuda_runtime_api.h): how they are chosen,
# the bits on them, checkpoints between them and the CPU, and what is said of those that fail. Without PLUGIN_FOLDER
# it is the real plugin, on this machine's GPU, and what an emulator must break is left out.
# usage: test_devices.sh BUILD_FOLDER [PLUGIN_FOLDER]
set -euo pipefail
build=$1
. tests/processes/common.sh
recipe=$root/tests/cuda/run.yaml
emulated=${2-}
export TESSERA_PLUGIN_PATH
TESSERA_PLUGIN_PATH=$(realpath "${emulated:-$build}")
unset EMULATED_CUDA
[ -n "$emulated" ] || "$program" doctor | grep -q '^device *found' || skip "no GPU"
# A program without plugins beside it.
bare=$scratch/bare
mkdir "$bare"
cp "$program" "$bare/tessera-train"

# run NAME OPTION…: what it says in $scratch/NAME.out, its exit code in `code`.
run() {
  code=0
  bounded "$bare/tessera-train" --config "$recipe" --metrics "$scratch/$1.metrics" "${@:2}" \
    > "$scratch/$1.out" 2>&1 || code=$?
}
trains() {
  run "$@"
  [ "$code" = 0 ] || fail "$1 ends with $code: $(cat "$scratch/$1.out")"
}
says() { # NAME CODE TEXT
  checks=$((checks + 1))
  grep -qF -- "$3" "$scratch/$1.out" || wrong "$1 does not say '$3'" "$scratch/$1.out"
  case $2 in
  fails) [ "$code" != 0 ] || wrong "$1 ends with 0" ;; # of several processes the launcher chooses whose code it has
  *) [ "$code" = "$2" ] || wrong "$1 ends with $code, not with $2" ;;
  esac
}
expect() { # WHAT GOT WANTED
  checks=$((checks + 1))
  [ "$2" = "$3" ] || wrong "$1: $2, not $3"
}
losses_of() { sed -n 's/.*"event":"step".*"loss":\([0-9.e+-]*\),.*/\1/p' "$1"; }
near() { # WHAT A B [MOST]: losses within MOST (1e-5) of each other
  checks=$((checks + 1))
  paste <(losses_of "$2") <(losses_of "$3") | awk -v most="${4:-1e-5}" '
    { apart = ($1 - $2) / $2; if (apart < 0) apart = -apart; if (NF != 2 || apart > most) bad = 1 }
    END { exit bad || NR == 0 }' || wrong "$1: losses apart"
}
cpu=(--set device_config.device=cpu)

# ---- the device is chosen, and said ----
trains one
says one 0 "; cuda:0, ${emulated:+Emulated H200, sm_90; cpu }"
# Of 4 GiB; the library's workspace is there, and no memory of the plan.
says one 0 "memory: cuda:0 has ${emulated:+4.0 GiB; outside of the plan: 0 B of its context and other programs, 32.0 MiB of libraries, 64.0 MiB kept for }"
trains cpu "${cpu[@]}"
near "cuda and cpu" "$scratch/one.metrics" "$scratch/cpu.metrics"
[ "$(hash_of "$scratch/one.metrics")" != "$(hash_of "$scratch/cpu.metrics")" ] ||
  wrong "weights of the GPU are the CPU's: does it compute?"
# Attention over heads wider than the kernels' is the host's.
head=(--set transformer_config.embedding_dim=264 --set transformer_config.num_heads=1
  --set numerics.units.tp=1 --set training_config.max_steps=2)
trains head "${head[@]}"
trains head_cpu "${head[@]}" "${cpu[@]}"
near "a wide head" "$scratch/head.metrics" "$scratch/head_cpu.metrics"
# Experts, whose gradients are stacks over microbatches.
experts=(--set transformer_config.model_type=mixtral --set transformer_config.num_groups=2
  --set transformer_config.dropout_prob=0 --set transformer_config.num_experts=4
  --set transformer_config.num_experts_per_token=2 --set training_config.max_steps=2)
trains experts "${experts[@]}"
trains experts_cpu "${experts[@]}" "${cpu[@]}"
near "experts" "$scratch/experts.metrics" "$scratch/experts_cpu.metrics"
expect "a note about captures of experts" "$(grep -c 'CUDA graphs' "$scratch/experts.out")" 0
experts+=(--set training_config.precision=bf16 --set 'numerics.units={batch: 4, tp: 2, expert: 2}')
trains experts "${experts[@]}"
for axis in ep tp; do
  trains experts_mesh "${experts[@]}" --set "mesh={axes: [$axis], shape: [2]}"
  expect "weights of experts over $axis" "$(hash_of "$scratch/experts_mesh.metrics")" "$(hash_of "$scratch/experts.metrics")"
done
# GEMMs in FP8: units of tp are two blocks of their sums or fewer; gradients in either format. No task is the host's.
# Over five seeds the losses of both devices were up to 1.5e-3 apart.
fp8=(--set training_config.precision=fp8 --set training_config.max_steps=2 --set training_config.gradient_accumulation_steps=1)
for gradients in e4m3 e5m2; do
  wide=("${fp8[@]}" --set transformer_config.embedding_dim=288 --set transformer_config.num_blocks=1
    --set training_config.fp8.gradients=$gradients)
  trains fp8 "${wide[@]}"
  expect "a note about captures in FP8" "$(grep -c 'CUDA graphs' "$scratch/fp8.out")" 0
  trains fp8_cpu "${wide[@]}" "${cpu[@]}"
  near "$gradients" "$scratch/fp8.metrics" "$scratch/fp8_cpu.metrics" 3e-3
  trains fp8_mesh "${wide[@]}" --set 'mesh={axes: [tp], shape: [2]}'
  expect "weights in FP8, $gradients, over tp" "$(hash_of "$scratch/fp8_mesh.metrics")" "$(hash_of "$scratch/fp8.metrics")"
  ! grep -q __asan_init "$program" || break # instrumented they take long
done
trains fp8 "${fp8[@]}"
trains fp8_mesh "${fp8[@]}" --set 'mesh={axes: [dp, tp], shape: [2, 2]}'
expect "weights in FP8 on a mesh" "$(hash_of "$scratch/fp8_mesh.metrics")" "$(hash_of "$scratch/fp8.metrics")"
# Positions that sequence parallelism shards: statistics that are scattered stay f32, and a rank's positions are multiplied
# by weights that tp does not split, in the sequence's units.
sharded=(--set 'mesh={axes: [tp], shape: [2]}' --set device_config.enable_sp=true)
units=(--set 'numerics.units={batch: 4, sequence: 2, tp: 2}' --set training_config.max_steps=2)
llama=("${units[@]}" --set transformer_config.model_type=llama --set transformer_config.num_groups=2
  --set transformer_config.intermediate_dim=20 --set training_config.precision=bf16)
heads='q_lora_rank: 24, kv_lora_rank: 16, qk_nope_head_dim: 12, qk_rope_head_dim: 8, v_head_dim: 24, dropout_prob: 0.0'
sizes='vocab_size: 0, max_sequence_length: 8, embedding_dim: 16, intermediate_dim: 16, num_blocks: 1, num_heads: 2'
latent=("${units[@]}" --set "transformer_config={model_type: deepseek_v3, $sizes, $heads}")
trains llama "${llama[@]}"
trains llama_mesh "${llama[@]}" "${sharded[@]}"
expect "dropout in bf16 with sp" "$(hash_of "$scratch/llama_mesh.metrics")" "$(hash_of "$scratch/llama.metrics")"
for sequence in 8 2; do
  latent[1]="numerics.units={batch: 4, sequence: $sequence, tp: 2}"
  trains latent "${latent[@]}"
  trains latent_mesh "${latent[@]}" "${sharded[@]}"
  expect "latent attention with sp" "$(hash_of "$scratch/latent_mesh.metrics")" "$(hash_of "$scratch/latent.metrics")"
done
trains latent_cpu "${latent[@]}" "${cpu[@]}"
near "latent attention" "$scratch/latent.metrics" "$scratch/latent_cpu.metrics"
expect "a note about the host's tasks in latent attention" "$(grep -c 'CUDA graphs' "$scratch/latent.out")" 0
# ZeRO gathers a bias between its GEMM and the sum; the norm's tasks are in another order than the graph.
for precision in f32 fp16; do
  biased=(--set 'numerics.units={batch: 4, tp: 1}' --set training_config.precision=$precision --set training_config.max_steps=2)
  trains biased "${biased[@]}"
  trains biased_mesh "${biased[@]}" --set 'mesh={axes: [dp], shape: [2]}' --set zero.stage=3
  expect "biases with ZeRO 3 in $precision" "$(hash_of "$scratch/biased_mesh.metrics")" "$(hash_of "$scratch/biased.metrics")"
done
trains owned --set 'mesh={axes: [dp], shape: [4]}' --set 'zero={stage: 3, partition: owner_hash}' \
  --set training_config.use_clip_grad_norm=false --set training_config.gradient_accumulation_steps=1 --set training_config.max_steps=1
# Lines are documents: of GPT-2, and of Llama in half precision, whose positions are rotary; over cp ranks compute
# their own rows.
lines=(--set training_config.documents=separate --set training_config.end_of_text=0 --set training_config.max_steps=2
  --set numerics.units.sequence=4)
turned=("${lines[@]}" --set transformer_config.model_type=llama --set transformer_config.num_groups=2
  --set training_config.precision=bf16 --set training_config.use_clip_grad_norm=false)
trains lines "${lines[@]}" --set training_config.data_path=src/base/arena.c
trains lines_cpu "${lines[@]}" --set training_config.data_path=src/base/arena.c "${cpu[@]}"
near "documents" "$scratch/lines.metrics" "$scratch/lines_cpu.metrics"
trains turned "${turned[@]}"
for mesh in '{axes: [cp], shape: [2]}' '{axes: [dp, cp], shape: [2, 2]}'; do
  trains turned_mesh "${turned[@]}" --set "mesh=$mesh"
  expect "documents on $mesh" "$(hash_of "$scratch/turned_mesh.metrics")" "$(hash_of "$scratch/turned.metrics")"
done
# Attention with wgmma: equal bits on all meshes, and a checkpoint that says so.
if [ -n "$emulated" ] || [ "$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1)" = 9.0 ]; then
  heads=(--set transformer_config.model_type=llama --set transformer_config.num_heads=4 --set transformer_config.num_groups=2
    --set transformer_config.head_dim=64 --set transformer_config.dropout_prob=0 --set transformer_config.num_blocks=1
    --set training_config.precision=bf16 --set training_config.max_steps=2 --set training_config.gradient_accumulation_steps=1)
  trains heads "${heads[@]}"
  export TESSERA_CUDA_WGMMA=1
  EMULATED_CUDA_LAUNCHES=$scratch/wgmma.launches trains wgmma "${heads[@]}" --set "training_config.checkpoint_dir=$scratch/wgmma"
  near "attention with wgmma" "$scratch/wgmma.metrics" "$scratch/heads.metrics" 1e-3
  if [ -n "$emulated" ]; then # whose sums of one tile are the same
    expect "launches with wgmma" "$(grep -c attention_wgmma_forward "$scratch/wgmma.launches")" 2
  else
    [ "$(hash_of "$scratch/wgmma.metrics")" != "$(hash_of "$scratch/heads.metrics")" ] || wrong "is wgmma used?"
  fi
  for mesh in '{axes: [tp], shape: [2]}' '{axes: [dp, tp], shape: [2, 2]}'; do
    trains wgmma_mesh "${heads[@]}" --set "mesh=$mesh"
    expect "wgmma on $mesh" "$(hash_of "$scratch/wgmma_mesh.metrics")" "$(hash_of "$scratch/wgmma.metrics")"
  done
  separate=("${heads[@]}" --set training_config.documents=separate --set training_config.end_of_text=0
    --set numerics.units.sequence=4 --set training_config.use_clip_grad_norm=false)
  trains wgmma_documents "${separate[@]}"
  trains wgmma_mesh "${separate[@]}" --set 'mesh={axes: [cp], shape: [2]}'
  expect "wgmma in documents over cp" "$(hash_of "$scratch/wgmma_mesh.metrics")" "$(hash_of "$scratch/wgmma_documents.metrics")"
  unset TESSERA_CUDA_WGMMA
  trains wgmma_resumed "${heads[@]}" --set training_config.max_steps=3 --set "training_config.checkpoint_dir=$scratch/wgmma" --resume
  says wgmma_resumed 0 ", wgmma"
  if [ -n "$emulated" ]; then
    EMULATED_CUDA=arch=80 TESSERA_CUDA_WGMMA=1 run wgmma_refused "${heads[@]}"
    says wgmma_refused 1 "sm_80: TESSERA_CUDA_WGMMA needs a GPU of sm_90"
  fi
fi
# Adapters beside weights in NF4, which are decoded for the GEMMs.
quantized=(--set transformer_config.embedding_dim=128 --set training_config.max_steps=2
  --set 'lora_config={r: 4, quantize_base: nf4}')
trains quantized "${quantized[@]}"
trains quantized_cpu "${quantized[@]}" "${cpu[@]}"
near "weights in NF4" "$scratch/quantized.metrics" "$scratch/quantized_cpu.metrics"
trains quantized_half "${quantized[@]}" --set training_config.precision=bf16
trains quantized_mesh "${quantized[@]}" --set training_config.precision=bf16 --set 'mesh={axes: [dp, tp], shape: [2, 2]}'
expect "weights in NF4 on a mesh" "$(hash_of "$scratch/quantized_mesh.metrics")" "$(hash_of "$scratch/quantized_half.metrics")"
# A vocabulary whose last tiles are padding.
vocabulary=(--set transformer_config.vocab_size=1025 --set training_config.tokenizer_type=byte
  --set training_config.max_steps=2 --set transformer_config.num_heads=8 --set numerics.units.tp=8)
precisions=(f32 bf16)
! grep -q __asan_init "$program" || precisions=(f32) # instrumented they take long
for precision in "${precisions[@]}"; do
  padded=("${vocabulary[@]}" --set training_config.precision=$precision)
  trains padded "${padded[@]}"
  trains padded_mesh "${padded[@]}" --set 'mesh={axes: [dp, tp], shape: [2, 4]}'
  expect "a padded vocabulary on a mesh" "$(hash_of "$scratch/padded_mesh.metrics")" "$(hash_of "$scratch/padded.metrics")"
  [ "$precision" = f32 ] || continue
  trains padded_cpu "${padded[@]}" "${cpu[@]}"
  near "a padded vocabulary" "$scratch/padded.metrics" "$scratch/padded_cpu.metrics"
done
# Here is no driver, so auto computes on the CPU, silently.
if ! ldconfig -p | grep -q libcuda.so.1; then
  trains auto --set device_config.device=auto
  expect "auto without a driver" "$(hash_of "$scratch/auto.metrics")" "$(hash_of "$scratch/cpu.metrics")"
fi
sed '/precision: f32/d' "$recipe" > "$scratch/usual.yaml"
recipe=$scratch/usual.yaml trains usual
says usual 0 "recipe: seed 11, deterministic, bf16, "
if [ -n "$emulated" ]; then
  EMULATED_CUDA=devices=3 trains third --set device_config.device_ids=[2]
  says third 0 "; cuda:2, Emulated H200, sm_90; cpu "
fi

# ---- a step is a captured graph, or the log has the reason ----
expect "a note about captures" "$(grep -c 'CUDA graphs' "$scratch/one.out")" 0
says head 0 "note: steps are not launched as CUDA graphs: the host runs 'block.0.a' (attention)"
if [ -n "$emulated" ]; then
  for capture in 1 2; do
    EMULATED_CUDA=uncaptured=$capture trains uncaptured
    says uncaptured 0 "note: steps are not launched as CUDA graphs: the capture failed: operation failed due to a previous error"
    expect "notes" "$(grep -c 'CUDA graphs' "$scratch/uncaptured.out")" 1
    expect "a failed capture $capture" "$(hash_of "$scratch/uncaptured.metrics")" "$(hash_of "$scratch/one.metrics")"
  done
fi
TESSERA_CUDA_GRAPHS=0 trains uncaptured
expect "notes about the user's wish" "$(grep -c 'CUDA graphs' "$scratch/uncaptured.out")" 0

# ---- profile ----
code=0
"$bare/tessera-train" profile --steps 2 --config "$recipe" --out "$scratch/profile" > "$scratch/profile.out" 2>&1 || code=$?
says profile 0 "limits, measured: "
says profile 0 "attention_dx"

# ---- the same bits on every mesh ----
want=$(hash_of "$scratch/one.metrics")
[ ${#want} = 64 ] || fail "no hash"
meshes=(dp=2 tp=2 pp=2 dp=2,tp=2)
! grep -q __asan_init "$program" || meshes=(dp=2,tp=2) # instrumented they take long
for mesh in "${meshes[@]}"; do
  options_of "$mesh"
  trains mesh "${options[@]}"
  expect "$mesh" "$(hash_of "$scratch/mesh.metrics")" "$want"
done
options_of dp=2 zero.stage=3
trains mesh "${options[@]}"
expect "ZeRO 3" "$(hash_of "$scratch/mesh.metrics")" "$want"
# A rank has several units of the batch, and the weight a part for each.
whole=(--set training_config.gradient_accumulation_steps=1 --set training_config.max_steps=2)
trains whole "${whole[@]}"
options_of dp=2 zero.stage=1
trains mesh "${whole[@]}" "${options[@]}"
expect "ZeRO 1 in one microbatch" "$(hash_of "$scratch/mesh.metrics")" "$(hash_of "$scratch/whole.metrics")"
options_of dp=2 zero.stage=2 zero.partition=owner_hash
trains mesh "${options[@]}"
expect "ZeRO 2 with owners" "$(hash_of "$scratch/mesh.metrics")" "$want"
options_of dp=2 zero.stage=1 zero.offload=file zero.offload_path="$scratch"
trains offload "${options[@]}"
near "state in a file, updated by the host" "$scratch/offload.metrics" "$scratch/one.metrics"
# Replicas are hashed where they are; of three ranks and more the one that differs is named with its device, and the run
# returns to a checkpoint. State in a file is hashed by the host.
flipping=$scratch/flipping
mkdir "$flipping"
cp "$build/tessera-train-flips" "$flipping/tessera-train"
replicas() { # NAME FLIP OPTION…
  code=0
  TESSERA_FLIP=$2 bounded "$flipping/tessera-train" --config "$recipe" --out "$scratch/$1" --set training_config.model_save_interval=2 \
    --set validate=replicas "${@:3}" > "$scratch/$1.out" 2>&1 || code=$?
}
options_of dp=4 numerics.units.batch=8
replicas equal "" "${options[@]}"
says equal 0 "replicas: equal at 6 checks"
for fault in 3:2:block.0.mlp.fc:20:1 3:2:wte.m:30:1 4:2:wte.v:30:1; do
  tensor=$(cut -d: -f3 <<< "$fault")
  replicas "$tensor" "$fault" "${options[@]}" --set validate_policy=resume
  says "$tensor" 0 "warning: the replicas of '$tensor' differ after step ${fault%%:*}: rank 2 (on $(hostname), cuda:0 at "
  says "$tensor" 0 "after step 2"
  expect "weights after a fault in $tensor" "$(hash_of "$scratch/$tensor/metrics.jsonl")" "$(hash_of "$scratch/equal/metrics.jsonl")"
done
options_of dp=4 numerics.units.batch=8 zero.offload=file zero.offload_path="$scratch"
replicas file 3:1:wte.m:30:1 "${options[@]}"
says file 1 "error: the replicas of 'wte.m' differ after step 3: rank 1 "
replicas file_equal "" "${options[@]}"
says file_equal 0 "replicas: equal at 6 checks"

# ---- and of an evaluation, whose batch of 3 samples dp = 2 does not divide ----
for n in $(seq 1 32); do echo "0.$((n * 7 % 32)),0.$((n * 5 % 32)),0.$((n * 11 % 32))"; done > "$scratch/rows.csv"
cat > "$scratch/rows.yaml" << EOF
training_config: {data_path: rows.csv, batch_size: 8, max_steps: 2, precision: f32, optimizer: {type: SGD, lr: 0.1}}
mlp_config: {graph: $root/configs/graphs/linear_regression.yaml, input_features: 2, output_features: 1}
device_config: {device: cuda}
numerics: {threads: 1, units: {batch: 2, tp: 1}}
EOF
cat > "$scratch/needs.yaml" << EOF
training_config: {seed: 3}
device_config: {device: cuda}
mesh: {axes: [dp], shape: [2]}
tensors: {x: {shape: [4, 8], layout: {partition: [col], mesh_axes: [dp]}, init: normal(1.0)}}
graph:
- y: matmul(x, x, transpose_b=1)
- z: all_reduce(y, axis=dp, transport=nccl)
outputs: [z]
EOF
evaluation_of() { sed -n 's/.*"event":"eval".*"loss":\([0-9.e+-]*\),.*/\1/p' "$scratch/$1.metrics" | tail -n 1; }
evaluates=(--set training_config.eval_every=2 --set training_config.max_steps=2
  --set training_config.validation_fraction=0.25 --set training_config.validation_batch_size=3)
for data in "$recipe" "$scratch/rows.yaml"; do
  recipe=$data trains evaluation "${evaluates[@]}"
  loss=$(evaluation_of evaluation)
  [ -n "$loss" ] || wrong "no evaluation of $data"
  options_of dp=2
  recipe=$data trains evaluation "${options[@]}" "${evaluates[@]}"
  expect "an evaluation of $data on dp=2" "$(evaluation_of evaluation)" "$loss"
  recipe=$data trains evaluation "${evaluates[@]}" "${cpu[@]}"
  checks=$((checks + 1))
  awk -v a="$(evaluation_of evaluation)" -v b="$loss" 'BEGIN { d = a - b; exit (d < 0 ? -d : d) > 1e-5 * b }' ||
    wrong "an evaluation of $data is $loss, on the CPU $(evaluation_of evaluation)"
done

# ---- checkpoints go from one device to the other ----
for to in cuda cpu; do
  from=cpu
  [ "$to" = cuda ] || from=cuda
  trains half --set device_config.device=$from --set training_config.max_steps=3 \
    --set training_config.checkpoint_dir="$scratch/of_$from"
  trains "half_$to" --set device_config.device=$to --set training_config.checkpoint_dir="$scratch/of_$from" --resume
  says "half_$to" 0 "from step 3 on the bits are those of "
  [ -z "$emulated" ] || [ "$to" = cpu ] || says "half_$to" 0 "the bits are those of cuda sm_90, 1 SMs, cuBLASLt 13.1"
  near "from $from to $to" "$scratch/half_$to.metrics" <(tail -n +5 "$scratch/one.metrics")
done
# Left open, the precision is the one that the run began with.
sed '/precision: f32/d' "$recipe" > "$scratch/open.yaml"
recipe=$scratch/open.yaml trains open --set device_config.device=cuda --set training_config.checkpoint_dir="$scratch/of_cpu" --set training_config.max_steps=6 --resume
grep -q bf16 "$scratch/open.out" && wrong "a run in f32 goes on in bf16" "$scratch/open.out"

[ -n "$emulated" ] || { report; exit; }

# ---- what is wrong ----
failure=error
rm -rf "$scratch/none"
mkdir "$scratch/none"
TESSERA_PLUGIN_PATH=$scratch/none run plugin
says plugin 1 "$recipe:29:25: $failure: the device is cuda, but no libtessera-cuda.so can be loaded"
says plugin 1 "$scratch/none/libtessera-cuda.so: no such file"
EMULATED_CUDA=devices=0 run devices
says devices 1 "the device is cuda: no device: no CUDA-capable device is detected (cudaErrorNoDevice)"
says devices 1 "= look at CUDA_VISIBLE_DEVICES, and at what nvidia-smi lists"
EMULATED_CUDA=arch=75 run arch
says arch 1 "rank 0: cuda:0: sm_75: kernels are for sm_80 (A100) and later"
EMULATED_CUDA=bytes=33655000 run memory # the library's workspace fits
says memory 1 "available on cuda:0"
says memory 1 "= cuda:0 has 32.1 MiB; outside of the plan: "
EMULATED_CUDA=bytes=90000000000000000 run host --set schedule.activation_offload=blocks \
  --set training_config.batch_size=16777216 --set training_config.gradient_accumulation_steps=1 \
  --set transformer_config.num_blocks=24 --set transformer_config.embedding_dim=128
says host 1 "the activations do not fit into the host's memory: 15.0 TiB needed, "
says host 1 "= schedule.activation_offload_blocks offloads fewer blocks"
options_of dp=260 training_config.batch_size=260 training_config.gradient_accumulation_steps=1 numerics.units.batch=260
run wide "${options[@]}"
says wide fails "axis dp has 260 ranks, and a device adds for 256 at most"
EMULATED_CUDA="fail=700@500" run lost --set training_config.checkpoint_dir="$scratch/lost"
says lost 1 "error: cuda:0: "
says lost 1 "an illegal memory access was encountered (cudaErrorIllegalAddress)"
grep -qE "cuda:0: rank 0, step [0-9]+: '[^']+' \([a-z_]+\): the device failed: " "$scratch/lost.out" ||
  wrong "the task is not named" "$scratch/lost.out"
EMULATED_CUDA=devices=3 run ids --set device_config.device_ids=[3]
says ids 2 "Physical chip id 3 not found in control plane chip mapping. 3 CUDA devices are visible to rank 0, 0 to 2"

# Several of them, instrumented, would take too long.
if grep -q __asan_init "$program"; then
  report
  exit
fi

# ---- several processes, each with a device: from one to the other by NCCL, which is emulated, too ----
export EMULATED_CUDA=devices=4 LD_LIBRARY_PATH=$TESSERA_PLUGIN_PATH${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
TESSERA_PLUGIN_PATH=$TESSERA_PLUGIN_PATH:$build
short=(--set training_config.max_steps=3)
trains short "${short[@]}"
want=$(hash_of "$scratch/short.metrics")
# What several processes write to one pipe may be in one another: each has a file for its errors.
cat > "$scratch/apart" << 'END'
#!/usr/bin/env bash
exec "$@" 2> "${0%/*}/traced.$$"
END
chmod +x "$scratch/apart"
around=()
work() { # NAME WORKERS OPTION…
  code=0
  bounded "${launcher[@]}" -n "$2" "${around[@]}" "$bare/tessera-train" --config "$recipe" --metrics "$scratch/$1.metrics" \
    "${short[@]}" "${@:3}" > "$scratch/$1.out" 2>&1 || code=$?
}
bits() { # WORKERS MESH OPTION…
  options_of "${@:2}"
  work bits "$1" "${options[@]}"
  says bits 0 "links: by NCCL, "
  says bits 0 ", NCCL 2.28.9; cpu "
  expect "$1 processes, ${*:2}" "$(hash_of "$scratch/bits.metrics")" "$want"
  expect "the device of $1 processes" "$(isa_of "$scratch/bits.metrics")" "cuda sm_90, 1 SMs, cuBLASLt 13.1"
}
isa_of() { sed -n 's/.*"isa":"\([^"]*\)".*/\1/p' "$1" | head -n 1; }
# Sums that policy fast leaves to the library, and those that it cannot: slices that do not lie one after
# the other, and those of processes with several members, are added by the tree.
fast() { # WORKERS OP ALGORITHMS MESH OPTION…
  local comm='^comm step=[0-9]* rank=[0-9]* seq=[0-9]*' around=("$scratch/apart")
  options_of "${@:4}" numerics.policy=fast
  rm -f "$scratch"/traced.*
  TESSERA_COMM_TRACE=1 work fast "$1" "${options[@]}"
  says fast 0 "links: by NCCL, "
  near "fast, ${*:4}" "$scratch/fast.metrics" "$scratch/short.metrics"
  expect "the device of fast, ${*:4}" "$(isa_of "$scratch/fast.metrics")" "cuda sm_90, 1 SMs, cuBLASLt 13.1, NCCL 2.28.9"
  expect "$1 processes, fast, ${*:4}" "$(sed -n "s/$comm op=$2 axis=dp bytes=[0-9]* algo=\([a-z]*\) tree=[a-z]* policy=[a-z]* transport=nccl path=nvlink .*/\1/p" \
    "$scratch"/traced.* | sort -u | xargs)" "$3"
}
for library in openmpi mpich; do
  choose_launcher $library || continue
  bits 2 pp=2
  bits 4 dp=2,tp=2
  bits 2 dp=2 zero.stage=3
  bits 2 dp=2 zero.stage=2 zero.partition=owner_hash
  [ -z "${others-}" ] || continue # the plugin is the same with the other MPI
  others=1
  bits 2 dp=2
  bits 2 tp=2
  bits 4 dp=2,pp=2
  bits 2 dp=2,tp=2
  bits 4 dp=2,tp=2 zero.stage=1 schedule.all_reduce_overlap=true schedule.bucket_size=2048
  # One process's capture fails: none launches a graph.
  options_of dp=2
  EMULATED_CUDA=devices=4,uncaptured=1 work uncaptured 2 "${options[@]}"
  says uncaptured 0 "note: steps are not launched as CUDA graphs: the capture failed"
  expect "2 processes without a capture" "$(hash_of "$scratch/uncaptured.metrics")" "$want"
  options_of tp=2 training_config.precision=bf16 numerics.tp_reductions=half
  trains half_sums "${short[@]}" "${options[@]}"
  work half_of_two 2 "${options[@]}"
  expect "2 processes, sums over tp in bf16" "$(hash_of "$scratch/half_of_two.metrics")" "$(hash_of "$scratch/half_sums.metrics")"
  work half_fast 2 "${options[@]}" --set numerics.policy=fast
  near "fast, sums over tp in bf16" "$scratch/half_fast.metrics" "$scratch/half_sums.metrics" 1e-2
  fast 2 all_reduce nccl dp=2
  fast 2 all_reduce nccl dp=4
  fast 2 reduce_scatter 'nccl tree' dp=2,tp=2 zero.stage=1
  fast 2 reduce_scatter tree dp=4 zero.stage=1
  # A process of two stages could wait in a circle; one device cannot be two processes'.
  options_of pp=4
  work stages 2 "${options[@]}" --set transformer_config.num_blocks=4
  says stages 0 "note: messages go through the host: a process has ranks of several stages"
  options_of dp=2
  EMULATED_CUDA=devices=1 work shared 2 "${options[@]}"
  says shared 0 "note: messages go through the host: processes 0 and 1 share the device at 0000:1b:00.0"
  says shared 0 "note: steps are not launched as CUDA graphs: messages between processes go through the host"
  expect "$library, through the host" "$(hash_of "$scratch/shared.metrics")" "$want"
  code=0 # a graph without a loss has no metrics
  EMULATED_CUDA=devices=1 bounded "${launcher[@]}" -n 2 "$bare/tessera-train" --config "$scratch/needs.yaml" \
    > "$scratch/needs.out" 2>&1 || code=$?
  says needs fails "$scratch/needs.yaml:7:6: $failure: the transport is nccl, but NCCL cannot be used: processes 0 and 1 share"
  options_of dp=2,tp=2
  EMULATED_CUDA=devices=3 work few 4 "${options[@]}"
  says few fails "4 processes are on this host, which has 3 CUDA devices"
  options_of dp=2
  EMULATED_NCCL=lost@20 work peer 2 "${options[@]}"
  says peer fails "NCCL: messages: remote process exited or there was a network error"
  EMULATED_CUDA=devices=4,stall=2 work stall 2 "${options[@]}" --set collectives.timeout_s=2
  says stall fails "NCCL: waiting for messages: nothing has come for 2 s (collectives.timeout_s)"
  EMULATED_NCCL=hang@20 work hang 2 "${options[@]}" --set collectives.timeout_s=2
  says hang fails "nothing has come for 2 s (collectives.timeout_s)"
done
report
