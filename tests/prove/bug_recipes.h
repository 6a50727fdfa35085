// SPDX-License-Identifier: Apache-2.0
/* The runs that get faults: model families on meshes. */
#ifndef TSR_TESTS_PROVE_BUG_RECIPES_H
#define TSR_TESTS_PROVE_BUG_RECIPES_H
#include "bug.h"

typedef enum {
  LLAMA_DP,    /* accumulates */
  LLAMA_DP_TP, /* axes of one size */
  LLAMA_SP,    /* sequence parallel, and clips */
  LLAMA_CP,
  LLAMA_ZIGZAG,
  LLAMA_PP,
  GPT2_DP, /* tied, dropout */
  GPT2_DP_TP,
  GPT2_PP, /* tied, clips */
  GPT2_CP,
  GPT2_SP,
  QWEN3_ZERO1,
  QWEN3_ZERO3,
  QWEN3_OWNERS,
  QWEN3_SP,
  QWEN3_CHUNKS, /* interleaved */
  MIXTRAL_EP,   /* dp, too; clips */
  DEEPSEEK_TP,
  CHAT_DP,
  CHAT_CP,
  LORA_TP, /* with dropout, and dp */
  DORA_ZERO1,
  BUG_RECIPES
} bug_run;

extern const bug_recipe bug_recipes[BUG_RECIPES];

#endif
