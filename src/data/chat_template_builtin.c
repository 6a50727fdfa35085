// SPDX-License-Identifier: Apache-2.0
#include "data/chat_template_builtin.h"

/* What the formats share: messages of three roles, whose content is a text or a list of texts. */
#define CONTENT                                                                                    \
  "{%- if tools or message.tool_calls %}"                                                          \
  "{{- raise_exception('this format has no tools') }}{% endif %}"                                  \
  "{%- if message.role not in ['system', 'user', 'assistant'] %}"                                  \
  "{{- raise_exception('this format has no role ' ~ message.role) }}{% endif %}"                   \
  "{%- set content = message.content | default('', true) %}"                                       \
  "{%- if content is not string %}"                                                                \
  "{% set content = content | map(attribute='text') | join %}{% endif %}"
#define REPLY(text)                                                                                \
  "{%- if message.role == 'assistant' %}{% generation %}" text                                     \
  "{% endgeneration %}{% else %}" text "{% endif %}"

static const struct {
  const char *token; /* tells the format */
  const char *text;
} formats[] = {
    {"<|im_start|>",
     "{%- for message in messages %}" CONTENT "{{- '<|im_start|>' ~ message.role ~ '\\n' }}" REPLY(
         "{{- content ~ '<|im_end|>' }}") "{{- '\\n' }}{% endfor %}"
                                          "{%- if add_generation_prompt %}{{- "
                                          "'<|im_start|>assistant\\n' }}{% endif %}"},
    {"<|start_header_id|>",
     "{{- '<|begin_of_text|>' }}{% for message in messages %}" CONTENT
     "{{- '<|start_header_id|>' ~ message.role ~ '<|end_header_id|>\\n\\n' }}" REPLY(
         "{{- content | trim ~ '<|eot_id|>' }}") "{% endfor %}"
                                                 "{%- if add_generation_prompt %}"
                                                 "{{- "
                                                 "'<|start_header_id|>assistant<|end_header_id|>"
                                                 "\\n\\n' }}{% endif %}"},
    /* The system message stands in front of the user's last message. */
    {"[INST]",
     "{{- '<s>' }}{% set ns = namespace(system='', last=-1) %}"
     "{%- for message in messages %}" CONTENT
     "{%- if message.role == 'system' %}{% set ns.system = ns.system ~ content ~ '\\n\\n' %}"
     "{%- elif message.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}"
     "{%- for message in messages %}" CONTENT "{%- if message.role == 'user' %}"
     "{{- '[INST]' ~ (ns.system if loop.index0 == ns.last else '') ~ content ~ '[/INST]' }}"
     "{%- elif message.role == 'assistant' %}"
     "{% generation %}{{- content ~ '</s>' }}{% endgeneration %}{% endif %}{% endfor %}"},
};

static int32_t find_special(const tsr_tokenizer *t, const char *text) {
  if (t->kind != TSR_TOKENIZER_SUBWORD) return -1;
  int32_t id = tsr_subword_find(t->subword, text);
  return id >= 0 && tsr_subword_is_special(t->subword, id) ? id : -1;
}

const char *tsr_chat_template_builtin(const tsr_tokenizer *tokenizer) {
  for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
    if (find_special(tokenizer, formats[i].token) >= 0) return formats[i].text;
  return NULL;
}

int tsr_chat_stops(const tsr_tokenizer *tokenizer, int32_t ret_stops[TSR_CHAT_STOPS_MAX]) {
  static const char *const texts[] = {"<|endoftext|>", "<|end_of_text|>", "</s>",
                                      "<|im_end|>",    "<|eot_id|>",      "<|eom_id|>"};
  int count = 0;
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    int32_t id = find_special(tokenizer, texts[i]);
    if (id >= 0) ret_stops[count++] = id;
  }
  return count;
}
