// SPDX-License-Identifier: Apache-2.0
/* Runs a fuzz target over the files and folders that are named, so that every machine replays the
 * corpus without libFuzzer. Says which input it is at, so that a crash names it. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int inputs;

static void replay_file(const char *path) {
  FILE *stream = fopen(path, "rb");
  if (!stream) perror(path), exit(1);
  size_t length = 0, capacity = 1 << 16, got;
  uint8_t *bytes = malloc(capacity);
  while (bytes && (got = fread(bytes + length, 1, capacity - length, stream)) > 0) {
    length += got;
    if (length == capacity) bytes = realloc(bytes, capacity *= 2);
  }
  if (!bytes || ferror(stream)) perror(path), exit(1);
  fclose(stream);
  fprintf(stderr, "%s\n", path);
  LLVMFuzzerTestOneInput(bytes, length);
  free(bytes);
  inputs++;
}

static void replay(const char *path) {
  struct stat info;
  if (stat(path, &info)) perror(path), exit(1);
  if (!S_ISDIR(info.st_mode)) {
    replay_file(path);
    return;
  }
  struct dirent **entries;
  int count = scandir(path, &entries, NULL, alphasort);
  for (int i = 0; i < count; i++) {
    size_t size = strlen(path) + strlen(entries[i]->d_name) + 2;
    char *inner = malloc(size);
    if (!inner) perror(path), exit(1);
    snprintf(inner, size, "%s/%s", path, entries[i]->d_name);
    if (entries[i]->d_name[0] != '.') replay(inner);
    free(inner);
    free(entries[i]);
  }
  free(entries);
}

int main(int count, char **paths) {
  for (int i = 1; i < count; i++) replay(paths[i]);
  printf("%d inputs\n", inputs);
  return inputs == 0; /* an empty corpus proves nothing */
}
