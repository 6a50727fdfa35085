// SPDX-License-Identifier: Apache-2.0
/* Hugging Face's config.json and the sizes of our graph files, both ways.
 *
 * What is refused by name, because it would compute something else, by config.json's model_type:
 *
 *   gpt2            activations but gelu_new and gelu_pytorch_tanh, which are one; unscaled
 *                   attention, cross attention
 *   llama           activations but silu, rope types but default and llama3
 *   mistral         (a llama of ours) the same
 *   qwen3           activations but silu, rope types but default, sliding windows
 *   mixtral         activations but silu, rope types but default, noise in the router
 *   qwen2_moe, qwen3_moe
 *                   as qwen3
 *   olmoe           activations but silu, rope types but default, clip_qkv
 *   deepseek_v3, deepseek_v2
 *                   activations but silu, rope types but default and yarn, other choices of
 *                   experts than the classes have; of deepseek_v2 norm_topk_prob, which its class
 *                   does not read
 *   glm4_moe        activations but silu, rope types but default, no block with experts
 *   gpt_oss         activations but silu, rope types but default and yarn, layer_types but windows
 *                   in all blocks but every n-th
 *
 * and everywhere: other architectures, is_causal: false, a transformers_weights but
 * model.safetensors, a per_layer_config, and quantized weights but those of hf_quantized.h. Keys
 * that do not change what the model computes (use_cache, initializer_range, …) are not looked
 * at. */
#ifndef TSR_CHECKPOINT_HF_CONFIG_H
#define TSR_CHECKPOINT_HF_CONFIG_H
#include "base/json.h"
#include "checkpoint/hf_quantized.h"
#include "config/config.h"

/* Latent attention, of deepseek_v3 and deepseek_v2; YaRN, of these and gpt_oss. */
typedef struct {
  int64_t q_lora_rank, kv_lora_rank; /* q_lora_rank 0: queries have one layer */
  int64_t qk_nope_head_dim, qk_rope_head_dim, v_head_dim;
  bool rope_interleave;
  double yarn_factor, beta_fast, beta_slow, mscale, mscale_all_dim; /* yarn_factor 0: none */
  double attention_factor;
  bool truncate;
} tsr_hf_latent;

/* Mixtures of experts: mixtral, qwen2_moe, qwen3_moe, olmoe, deepseek_v3, deepseek_v2, glm4_moe,
 * gpt_oss. */
typedef struct {
  int64_t num_experts, num_experts_per_token; /* num_experts 0: the model has none */
  int64_t dense_intermediate_dim;  /* of blocks without experts, of Qwen's and DeepSeek's; else 0 */
  int64_t shared_intermediate_dim; /* of qwen2_moe; else 0 */
  int64_t decoder_sparse_step;     /* of Qwen's */
  const int64_t *mlp_only_layers;
  int mlp_only_layers_count;
  bool norm_topk_prob; /* not of mixtral */
  double router_aux_loss_coef;
  bool adds_aux_loss; /* output_router_logits, and balance.loss: forward */
  /* of DeepSeek's and glm4_moe */
  int64_t num_shared_experts, first_k_dense_replace, num_expert_groups, num_kept_groups;
  double routed_scaling_factor;
  double swiglu_alpha, swiglu_limit; /* of gpt_oss */
} tsr_hf_experts;

typedef struct {
  const char *model_type; /* of ours: the name of a graph file */
  int64_t vocab_size, embedding_dim, intermediate_dim, num_blocks, num_heads;
  int64_t num_groups, head_dim; /* num_groups: not of gpt2 */
  int64_t max_sequence_length;
  double norm_eps, dropout_prob;
  bool tied;
  double theta;                                             /* not of gpt2 */
  bool attention_bias;                                      /* not of gpt2 */
  double scaling_factor, low_freq_factor, high_freq_factor; /* of llama; scaling_factor 0: none */
  int64_t original_context_length;                          /* of deepseek_v3, too */
  bool mlp_bias;                                            /* of llama */
  int64_t sliding_window;       /* of llama, mixtral and gpt_oss; 0: none. A llama that has one is
                             transformers' mistral */
  int64_t full_attention_step;  /* of gpt_oss: every so manyth block has no window */
  double partial_rotary_factor; /* of glm4_moe */
  bool use_qk_norm;             /* of glm4_moe */
  tsr_hf_latent latent;
  tsr_hf_experts experts;
  tsr_hf_quantization quantization; /* of the weights beside config.json */
  int64_t pad_token;  /* whose row of the embedding has no gradient from lookups, not of gpt2; -1 */
  int64_t mtp_layers; /* blocks behind the last that predict further tokens; imports drop them */
} tsr_hf_config;

/* From config.json's text, which errors call `path`. All errors in one call. */
bool tsr_hf_config_read(
    tsr_arena *arena, const char *path, const char *text, size_t length, tsr_hf_config *ret_config,
    const cJSON **ret_json, tsr_diags *diags);

/* Appends our section `transformer_config: …`. */
void tsr_hf_config_yaml(const tsr_hf_config *config, tsr_text *text);

/* The same sizes out of a configuration of ours, with the defaults of its graph file. Errors: a
 * model that transformers has no class for. */
bool tsr_hf_config_of(
    tsr_arena *arena, const tsr_config *config, int64_t vocab_stored, const char *graphs_folder,
    tsr_hf_config *ret_config, tsr_diags *diags);

/* Appends a config.json for transformers; `dtype`: "float32", …; `ids`: an object that may have
 * bos_token_id, eos_token_id and pad_token_id, or NULL. */
void tsr_hf_config_json(
    const tsr_hf_config *config, const char *dtype, const cJSON *ids, tsr_text *text);

#endif
