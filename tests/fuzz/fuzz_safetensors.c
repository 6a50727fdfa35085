// SPDX-License-Identifier: Apache-2.0
/* Any bytes as a safetensors file: what is taken covers the file without holes, and its header is
 * read again as it was when our writer has written it. */
#include "checkpoint/safetensors.h"
#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool open_bytes(
    tsr_arena *arena, const void *bytes, size_t length, tsr_safetensors *ret_file,
    tsr_diags *diags) {
  int fd = memfd_create("fuzz", MFD_CLOEXEC);
  assert(fd >= 0);
  ssize_t put = write(fd, bytes, length);
  assert(put == (ssize_t)length);
  const char *path = tsr_arena_printf(arena, "/proc/self/fd/%d", fd);
  bool ok = tsr_safetensors_open(arena, path, TSR_NOWHERE, ret_file, diags);
  close(fd);
  return ok;
}

static void check_again(tsr_arena *arena, const tsr_safetensors *file, tsr_diags *diags) {
  int count = file->tensors_count;
  tsr_safetensor *copies = tsr_arena_array(arena, tsr_safetensor, count);
  if (count) memcpy(copies, file->tensors, sizeof *copies * (size_t)count);
  tsr_text text = {0};
  tsr_safetensors_header(copies, count, file->metadata, file->metadata_count, &text);
  if (count)
    tsr_text_add_bytes(
        &text, file->map + file->tensors[0].offset, (size_t)(file->size - file->tensors[0].offset));
  tsr_safetensors again;
  bool ok = open_bytes(arena, text.data, text.length, &again, diags);
  assert(ok && again.tensors_count == count && again.metadata_count == file->metadata_count);
  for (int i = 0; i < count; i++) {
    const tsr_safetensor *a = &file->tensors[i], *b = &again.tensors[i];
    assert(!strcmp(a->name, b->name) && !strcmp(a->dtype, b->dtype) && a->ndim == b->ndim);
    assert(!memcmp(a->shape, b->shape, sizeof a->shape) && a->bytes == b->bytes);
    assert(b->offset == copies[i].offset);
  }
  tsr_safetensors_close(&again);
  tsr_text_free(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  tsr_arena *arena = tsr_arena_new();
  tsr_diags *diags = tsr_diags_new(arena);
  tsr_safetensors file;
  if (open_bytes(arena, data, size, &file, diags)) {
    int64_t at = file.tensors_count ? file.tensors[0].offset : file.size;
    for (int i = 0; i < file.tensors_count; at += file.tensors[i++].bytes) {
      assert(file.tensors[i].offset == at);
      assert(tsr_safetensors_find(&file, file.tensors[i].name) == i);
    }
    assert(at == file.size);
    check_again(arena, &file, diags);
    tsr_safetensors_close(&file);
  } else {
    assert(tsr_diags_errors(diags) == 1 && !file.map);
  }
  tsr_arena_free(arena);
  return 0;
}
