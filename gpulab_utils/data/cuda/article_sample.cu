cudaStream_t stream1, stream2;
cudaStreamCreate(&stream1);
cudaStreamCreate(&stream2);

// 在stream1中执行操作
cudaMemcpyAsync(d_output1, h_input1, size, cudaMemcpyHostToDevice, stream1);
kernel<<<grid, block, 0, stream1>>>(d_input1, d_output1);

// 在stream2中执行操作
cudaMemcpyAsync(d_output2, h_input2, size, cudaMemcpyHostToDevice, stream2);
kernel<<<grid, block, 0, stream2>>>(d_input2, d_output2);

// 等待两个stream完成
cudaStreamSynchronize(stream1);
cudaStreamSynchronize(stream2);
