// SPDX-License-Identifier: Apache-2.0
#include "bug_recipes.h"

#define ADAMW "batch_size: 8, sequence_length: 32, optimizer: {type: AdamW, lr: 0.01}"
#define CLIP ", use_clip_grad_norm: true, clip_grad_norm_max_norm: 0.1"
#define MODEL(type, blocks, more)                                                                  \
  "transformer_config: {model_type: " type ", vocab_size: 64, embedding_dim: 32, num_heads: 4, "   \
  "num_blocks: " blocks ", max_sequence_length: 32" more "}\n"
#define LLAMA(blocks) MODEL("llama", blocks, ", num_groups: 2, intermediate_dim: 48")
#define QWEN3(blocks) MODEL("qwen3", blocks, ", num_groups: 2, intermediate_dim: 48")
#define GPT2 MODEL("gpt2", "2", ", dropout_prob: 0.2, weight_tying: enabled")
#define PIPE(schedule, microbatches)                                                               \
  "\npipeline: {microbatches: " microbatches ", schedule: " schedule "}"

const bug_recipe bug_recipes[BUG_RECIPES] = {
    [LLAMA_DP] =
        {"llama", "dp 2, accumulation 2", ADAMW ", gradient_accumulation_steps: 2",
         LLAMA("2") "mesh: {axes: [dp], shape: [2]}"},
    [LLAMA_DP_TP] =
        {"llama", "dp 2 × tp 2", ADAMW, LLAMA("2") "mesh: {axes: [dp, tp], shape: [2, 2]}"},
    [LLAMA_SP] =
        {"llama", "tp 2, sequence parallel", ADAMW CLIP,
         LLAMA("2") "mesh: {axes: [tp], shape: [2]}\ndevice_config: {enable_sp: true}"},
    [LLAMA_CP] = {"llama", "cp 2", ADAMW, LLAMA("2") "mesh: {axes: [cp], shape: [2]}"},
    [LLAMA_ZIGZAG] =
        {"llama", "cp 2, zigzag", ADAMW,
         LLAMA("2") "mesh: {axes: [cp], shape: [2]}\ndevice_config: {cp_layout: zigzag}"},
    [LLAMA_PP] =
        {"llama", "pp 2, 1F1B", ADAMW,
         LLAMA("4") "mesh: {axes: [pp], shape: [2]}" PIPE("1f1b", "4")},
    [GPT2_DP] =
        {"gpt2", "dp 2, accumulation 2", ADAMW ", gradient_accumulation_steps: 2",
         GPT2 "mesh: {axes: [dp], shape: [2]}"},
    [GPT2_DP_TP] = {"gpt2", "dp 2 × tp 2", ADAMW, GPT2 "mesh: {axes: [dp, tp], shape: [2, 2]}"},
    [GPT2_PP] =
        {"gpt2", "pp 2, 1F1B", ADAMW CLIP, GPT2 "mesh: {axes: [pp], shape: [2]}" PIPE("1f1b", "4")},
    [GPT2_CP] = {"gpt2", "cp 2", ADAMW, GPT2 "mesh: {axes: [cp], shape: [2]}"},
    [GPT2_SP] =
        {"gpt2", "tp 2, sequence parallel", ADAMW,
         GPT2 "mesh: {axes: [tp], shape: [2]}\ndevice_config: {enable_sp: true}"},
    [QWEN3_ZERO1] =
        {"qwen3", "dp 2, ZeRO 1", ADAMW CLIP,
         QWEN3("2") "mesh: {axes: [dp], shape: [2]}\nzero: {stage: 1}"},
    [QWEN3_ZERO3] =
        {"qwen3", "dp 2, ZeRO 3", ADAMW,
         QWEN3("2") "mesh: {axes: [dp], shape: [2]}\nzero: {stage: 3}"},
    [QWEN3_OWNERS] =
        {"qwen3", "dp 2, ZeRO 2 by owners", ADAMW,
         QWEN3("2") "mesh: {axes: [dp], shape: [2]}\nzero: {stage: 2, partition: owner_hash}"},
    [QWEN3_SP] =
        {"qwen3", "tp 2, sequence parallel", ADAMW,
         QWEN3("2") "mesh: {axes: [tp], shape: [2]}\ndevice_config: {enable_sp: true}"},
    [QWEN3_CHUNKS] =
        {"qwen3", "pp 2, interleaved", ADAMW,
         QWEN3("4") "mesh: {axes: [pp], shape: [2]}" PIPE("interleaved", "4")},
    [MIXTRAL_EP] =
        {"mixtral", "dp 2 × ep 2", ADAMW CLIP,
         MODEL(
             "mixtral", "2",
             ", num_groups: 2, intermediate_dim: 48, num_experts: 4, num_experts_per_token: 2, "
             "weight_tying: enabled") "mesh: {axes: [dp, ep], shape: [2, 2]}"},
    [DEEPSEEK_TP] =
        {"deepseek_v3", "tp 2", ADAMW,
         MODEL(
             "deepseek_v3", "2",
             ", intermediate_dim: 48, q_lora_rank: 16, kv_lora_rank: 16, qk_nope_head_dim: 8, "
             "qk_rope_head_dim: 8, v_head_dim: 8") "mesh: {axes: [tp], shape: [2]}"},
    [CHAT_DP] =
        {"llama", "chat documents, dp 2", ADAMW,
         "data: {format: chat, template: chatml}\n" LLAMA("2") "mesh: {axes: [dp], shape: [2]}"},
    [CHAT_CP] =
        {"llama", "chat documents, cp 2", ADAMW,
         "data: {format: chat, template: chatml}\n" LLAMA("2") "mesh: {axes: [cp], shape: [2]}"},
    [LORA_TP] =
        {"llama with LoRA", "dp 2 × tp 2", ADAMW,
         "lora_config: {r: 4, lora_alpha: 8, lora_dropout: 0.2}\n" LLAMA(
             "2") "mesh: {axes: [dp, tp], shape: [2, 2]}"},
    [DORA_ZERO1] =
        {"gpt2 with DoRA", "dp 2, ZeRO 1", ADAMW,
         "lora_config: {r: 4, lora_alpha: 8, use_dora: true}\n" MODEL(
             "gpt2", "2", "") "mesh: {axes: [dp], shape: [2]}\nzero: {stage: 1}"},
};
