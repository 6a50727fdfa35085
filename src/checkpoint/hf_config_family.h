// SPDX-License-Identifier: Apache-2.0
/* Our graph files that transformers has classes for, and what some of them have in common. */
#ifndef TSR_CHECKPOINT_HF_CONFIG_FAMILY_H
#define TSR_CHECKPOINT_HF_CONFIG_FAMILY_H
#include "checkpoint/hf_config.h"
#include <string.h>

/* A llama with a window is another class; a DeepSeek is V3 or V2 by how it scores experts. */
typedef struct {
  const char *name, *class;
} tsr_hf_family;
extern const tsr_hf_family tsr_hf_families[];
extern const int tsr_hf_families_count;

static inline bool is(const tsr_hf_config *c, const char *type) {
  return !strcmp(c->model_type, type);
}

static inline bool is_gpt2(const tsr_hf_config *c) { return is(c, "gpt2"); }

static inline bool is_latent(const tsr_hf_config *c) {
  return is(c, "deepseek_v3") || is(c, "deepseek_v2") || is(c, "deepseek");
}

/* Routed and shared experts, chosen as DeepSeek does. */
static inline bool has_deepseek_experts(const tsr_hf_config *c) {
  return c->experts.num_experts && (is_latent(c) || is(c, "glm4_moe"));
}

#endif
