// SPDX-License-Identifier: Apache-2.0
/* A checkpoint as one GGUF file, as convert_hf_to_gguf.py of llama.cpp makes it of the Hugging Face
 * folder that tsr_hf_export writes. */
#ifndef TSR_CHECKPOINT_GGUF_EXPORT_H
#define TSR_CHECKPOINT_GGUF_EXPORT_H
#include "checkpoint/hf_export.h"

/* `options->dtype` may be "q8_0", too; NULL: as the embedding is stored. An existing file `out` is
 * replaced if it is a GGUF file; it appears when it is whole. Every byte of the checkpoint is
 * compared with its hash before. Needs the memory of one matrix's rows that are reordered together,
 * some megabytes, and the tokenizer's.
 *
 * Errors: a model that llama.cpp has no architecture for, or computes otherwise; a tokenizer whose
 * pre-tokenizer llama.cpp does not have; values beyond the range of the dtype. */
bool tsr_gguf_export(
    tsr_arena *arena, const char *checkpoint, const char *out, const tsr_hf_export_options *options,
    tsr_diags *diags);

#endif
