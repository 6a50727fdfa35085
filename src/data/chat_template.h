// SPDX-License-Identifier: Apache-2.0
/* The chat template of a model, found and rendered as transformers' apply_chat_template does.
 *
 * A folder has its template in chat_template.jinja, else in the key "chat_template" of
 * tokenizer_config.json (a string, or a list of named templates), else in chat_template.json;
 * additional_chat_templates/NAME.jinja are named ones. Of several, "tool_use" is the one for
 * conversations with tools, if there is one, and "default" for the others. Its variables are the
 * special tokens as transformers 5 reads them: bos_token, eos_token, …, and the model's own, such
 * as image_token, of tokenizer_config.json and the older special_tokens_map.json. A folder without
 * a template, or none at all, has the built-in template of the format that the tokenizer's special
 * tokens tell: ChatML, Llama 3 or Mistral. The files may be symbolic links to regular files. */
#ifndef TSR_DATA_CHAT_TEMPLATE_H
#define TSR_DATA_CHAT_TEMPLATE_H
#include "data/tokenizer.h"
#include "jinja/render.h"

/* Never changes once it is open: any number of threads may use it. Lives in the arena. */
typedef struct tsr_chat_template tsr_chat_template;

/* `folder` (NULL: none) has tokenizer_config.json with the special tokens, and the template unless
 * `file` (NULL: none) names one. Errors are located in the template or at `location`. A model
 * without any template is no error until a conversation is rendered. */
bool tsr_chat_template_open(
    tsr_arena *arena, const char *folder, const char *file, const tsr_tokenizer *tokenizer,
    tsr_location location, const tsr_chat_template **ret_template, tsr_diags *diags);

/* The same template, whose strftime_now reads this time (seconds since 1970, UTC) instead of the
 * clock, so that what is made of it is the same every day; TSR_JINJA_NO_TIME refuses it. */
const tsr_chat_template *
tsr_chat_template_at(tsr_arena *arena, const tsr_chat_template *of, int64_t now);

/* A conversation as templates read it. Kinds other than these mean that there is none. */
typedef struct {
  tsr_jinja_value messages; /* a list of dicts with "role", "content", … */
  tsr_jinja_value tools;    /* a list */
  tsr_jinja_value extra;    /* a dict: further variables, such as enable_thinking */
} tsr_chat;

/* Renders messages [0, count) of a conversation. As in transformers, keys whose value is null are
 * left out of messages, and reasoning_content, thinking and reasoning stand for each other. In
 * ret_output->written message i has the label i + 1. */
bool tsr_chat_template_render(
    tsr_arena *arena, const tsr_chat_template *of, const tsr_chat *chat, int count,
    bool add_generation_prompt, tsr_jinja_output *ret_output, tsr_diags *diags);

/* Whether the template that renders this conversation marks the assistant's text with
 * {% generation %}. */
bool tsr_chat_template_has_generation(const tsr_chat_template *of, const tsr_chat *chat);

/* The text of a folder's special token ("bos_token") as templates read it; NULL: it has none. */
bool tsr_chat_template_special(
    tsr_arena *arena, const char *folder, const tsr_tokenizer *tokenizer, const char *name,
    const char **ret_text, tsr_diags *diags);

/* The text of the end-of-sequence token: tokenizer_config.json's eos_token, else the tokenizer's
 * (tsr_tokenizer_end_of_text); NULL: it has none. */
const char *tsr_chat_template_eos(const tsr_chat_template *of);

#endif
