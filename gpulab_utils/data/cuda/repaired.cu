// The article's sample, repaired: every output is 2x + 1, in two streams, and it is checked.
//   nvcc -o repaired repaired.cu && ./repaired
#include <cstdio>
#include <cstdlib>

#define CHECK(call)                                                                  \
    do {                                                                             \
        cudaError_t status = (call);                                                 \
        if (status != cudaSuccess) {                                                 \
            fprintf(stderr, "%s:%d: error %d, %s\n", __FILE__, __LINE__, (int)status, \
                    cudaGetErrorString(status));                                     \
            exit(1);                                                                 \
        }                                                                            \
    } while (0)

__global__ void kernel(const float *input, float *output, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) output[i] = 2 * input[i] + 1;
}

int main() {
    const int n = 1 << 20, halves = 2;
    const size_t size = n * sizeof(float);
    float *h_input[halves], *h_output[halves], *d_input[halves], *d_output[halves];
    cudaStream_t stream[halves];
    for (int s = 0; s < halves; s++) {
        CHECK(cudaStreamCreate(&stream[s]));
        CHECK(cudaMallocHost(&h_input[s], size));  // page-locked, or no copy overlaps
        CHECK(cudaMallocHost(&h_output[s], size));
        CHECK(cudaMalloc(&d_input[s], size));
        CHECK(cudaMalloc(&d_output[s], size));
        CHECK(cudaMemset(d_input[s], 0xFF, size));  // NaN: what is not copied shows
        for (int i = 0; i < n; i++) h_input[s][i] = (float)(i % 1000);
    }
    CHECK(cudaDeviceSynchronize());
    dim3 block(256), grid((n + 255) / 256);
    for (int s = 0; s < halves; s++) {
        CHECK(cudaMemcpyAsync(d_input[s], h_input[s], size, cudaMemcpyHostToDevice, stream[s]));
        kernel<<<grid, block, 0, stream[s]>>>(d_input[s], d_output[s], n);
        CHECK(cudaGetLastError());
        CHECK(cudaMemcpyAsync(h_output[s], d_output[s], size, cudaMemcpyDeviceToHost, stream[s]));
    }
    int wrong = 0;
    for (int s = 0; s < halves; s++) {
        CHECK(cudaStreamSynchronize(stream[s]));
        for (int i = 0; i < n; i++) wrong += h_output[s][i] != 2 * h_input[s][i] + 1;
    }
    for (int s = 0; s < halves; s++) {
        CHECK(cudaFree(d_input[s]));
        CHECK(cudaFree(d_output[s]));
        CHECK(cudaFreeHost(h_input[s]));
        CHECK(cudaFreeHost(h_output[s]));
        CHECK(cudaStreamDestroy(stream[s]));
    }
    printf("%d of %d outputs wrong\n", wrong, halves * n);
    return wrong != 0;
}
