// SPDX-License-Identifier: Apache-2.0
/* Token files in the making: written beside their place, and moved there when they are whole. */
#ifndef TSR_DATA_TOKEN_WRITER_H
#define TSR_DATA_TOKEN_WRITER_H
#include "base/new_file.h"
#include "data/token_files.h"

/* What is written; nanogpt is one of the two by the tokens' type. */
typedef enum { TSR_TOKENS_AS_LLMC, TSR_TOKENS_AS_NANOGPT, TSR_TOKENS_AS_MEGATRON } tsr_tokens_as;

typedef struct tsr_token_writer tsr_token_writer;

/* Begins PATH; of Megatron PATH.bin and PATH.idx, an ending .bin or .idx of `path` aside. 32-bit
 * tokens are u32, in Megatron's files i32. An error if a file exists that is not known to be
 * tokens of this format, unless it `overwrites` (data/overwrite_check.h). */
bool tsr_token_writer_open(
    tsr_arena *arena, const char *path, tsr_tokens_as as, bool is_wide, bool overwrites,
    tsr_token_writer **ret, tsr_diags *diags);
/* Adds tokens as they lie in the file (2 or 4 bytes each). */
bool tsr_token_writer_add(
    tsr_token_writer *writer, const void *tokens, int64_t count, tsr_diags *diags);
/* The tokens since the last call are a document; only Megatron's files know of it. */
bool tsr_token_writer_end_document(tsr_token_writer *writer, tsr_diags *diags);
/* Writes headers, flushes to disk and puts the files in their places together, with one that was
 * written `beside` them (NULL: none): tsr_new_files_commit. Whether it succeeds or not, the writer
 * and that file are closed; when it fails all names have the files that they had before. */
bool tsr_token_writer_finish(tsr_token_writer *writer, tsr_new_file *beside, tsr_diags *diags);
/* Removes what was written; NULL is fine. */
void tsr_token_writer_abandon(tsr_token_writer *writer);

int64_t tsr_token_writer_tokens(const tsr_token_writer *writer);
const char *tsr_token_writer_path(const tsr_token_writer *writer); /* of the tokens */

#endif
