// SPDX-License-Identifier: Apache-2.0
/* llm.c's training step, for scripts/bench: stands in a copy of its checkout in place of
 * test_gpt2.c, which its Makefile compiles with the same flags as train_gpt2.c. The step is that
 * of its main. usage: test_gpt2 MODEL TOKENS BATCH SEQUENCE STEPS; prints one JSON object a step
 * */
#define TESTING
#include "train_gpt2.c"

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int main(int argc, char **argv) {
  if (argc != 6) return 2;
  int batch = atoi(argv[3]), sequence = atoi(argv[4]), steps = atoi(argv[5]);
  GPT2 model;
  gpt2_build_from_checkpoint(&model, argv[1]);
  DataLoader loader;
  dataloader_init(&loader, argv[2], batch, sequence, 0, 1, 1);
  printf("{\"event\":\"start\"}\n");
  fflush(stdout);
  for (int step = 0; step < steps; step++) {
    double start = now();
    dataloader_next_batch(&loader);
    gpt2_forward(&model, loader.inputs, loader.targets, batch, sequence);
    gpt2_zero_grad(&model);
    gpt2_backward(&model);
    gpt2_update(&model, 1e-4f, 0.9f, 0.999f, 1e-8f, 0.0f, step + 1);
    double seconds = now() - start;
    printf(
        "{\"event\":\"step\",\"step\":%d,\"loss\":%f,\"ms\":%f}\n", step + 1, model.mean_loss,
        1000 * seconds);
    fflush(stdout);
  }
  dataloader_free(&loader);
  gpt2_free(&model);
  return 0;
}
