// What the article's sample leaves out, and nothing else: names, memory, a kernel. Outputs
// are to be 2 * 7 + 1 = 15. No status is looked at, as in the sample.
//   nvcc -I FOLDER_OF_THE_SAMPLE -DSAMPLE='"article_sample.cu"' -o sample harness.cu
#include <cstdio>
#include <cstdlib>

__global__ void kernel(const float *input, float *output) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    output[i] = 2 * input[i] + 1;
}

int main() {
    const int n = 1024;
    const size_t size = n * sizeof(float);
    float *h_input1 = (float *)malloc(size), *h_input2 = (float *)malloc(size);
    float *h_back = (float *)calloc(n, sizeof(float));
    float *d_input1, *d_input2, *d_output1, *d_output2;
    cudaMalloc(&d_input1, size);
    cudaMalloc(&d_input2, size);
    cudaMalloc(&d_output1, size);
    cudaMalloc(&d_output2, size);
    cudaMemset(d_input1, 0xFF, size);  // NaN: what is not copied shows
    cudaMemset(d_input2, 0xFF, size);
    for (int i = 0; i < n; i++) h_input1[i] = h_input2[i] = 7;
    dim3 block(256), grid(n / 256);
#include SAMPLE
    cudaMemcpy(h_back, d_output1, size, cudaMemcpyDeviceToHost);
    printf("%f\n", h_back[0]);
    return 0;
}
