// SPDX-License-Identifier: Apache-2.0
/* What families of config.json have in common, and the families with experts. Each function reads
 * its keys into the reader's configuration; a mistake is an error and clears the reader's `ok`. */
#ifndef TSR_CHECKPOINT_HF_CONFIG_PARTS_H
#define TSR_CHECKPOINT_HF_CONFIG_PARTS_H
#include "checkpoint/hf_config_reader.h"

/* hf_config_parts.c. The class that wrote the weights: the language model, or its body alone. */
void tsr_hf_read_architecture(reader *r, const char *model, const char *body);

/* `groups`: num_key_value_heads of the class where the key is missing; 0: num_attention_heads, as
 * null is. */
void tsr_hf_read_sizes(reader *r, int64_t groups);
/* The same of a family whose layer_types must be full attention. */
void tsr_hf_read_common(reader *r, int64_t groups);

/* The scaling that a family has beside none. */
typedef enum { ROPE_PLAIN, ROPE_LLAMA3, ROPE_YARN, ROPE_PARTIAL } rope_kind;

/* rope_parameters, or rope_scaling if it is not empty; NULL: neither. */
const cJSON *tsr_hf_rope(const reader *r);
/* `theta`: of the class where the key is missing. */
void tsr_hf_read_rope(reader *r, rope_kind kind, double theta);

/* hf_config_experts.c */
void tsr_hf_read_mixtral(reader *r);
void tsr_hf_read_qwen2_moe(reader *r);
void tsr_hf_read_qwen3_moe(reader *r);
void tsr_hf_read_olmoe(reader *r);
void tsr_hf_read_deepseek_v2(reader *r);
void tsr_hf_read_deepseek_v3(reader *r);
void tsr_hf_read_glm4_moe(reader *r);
void tsr_hf_read_gpt_oss(reader *r);

#endif
