// The listing over ATB's own headers. What differs is marked.
#include "spec_decode/operation.h" // in the place of atb/spec_decode.h
#include "atb/atb_infer.h"         // in the place of atb/context.h
#include <iostream>
int main() {
// 初始化执行上下文
aclInit(nullptr);                      // ATB's context starts nothing
aclrtSetDevice(0);
atb::Context *context = nullptr;       // an interface: it is made and destroyed
atb::CreateContext(&context);
aclrtStream stream;
aclrtCreateStream(&stream);
context->SetExecuteStream(stream);
{                                      // the operation goes before AscendCL ends
// 1. 初始化推测解码算子
atb::SpecDecodeOp spec_op;
atb::SpecDecodeParam params;
params.draft_model_path = "models/draft_bert.onnx";
params.target_model_path = "models/target_bert.onnx";
params.max_spec_length = 5; // 经验值：3-5之间效果最佳
spec_op.Init(params, context);
// 2. 准备输入数据
atb::Tensor input_tokens;
std::vector<int32_t> input_ids = {101, 2043, 2003, 102}; // 示例输入
atb::spec_decode::allocate("input", ACL_INT32, {1, static_cast<int64_t>(input_ids.size())}, input_tokens); // no CreateTensor
aclrtMemcpy(input_tokens.deviceData, input_tokens.dataSize, // no deviceSize
input_ids.data(), input_ids.size() * sizeof(int32_t),
ACL_MEMCPY_HOST_TO_DEVICE);
// 3. 执行推测解码
atb::Tensor output_tokens;
spec_op.Forward(input_tokens, output_tokens, context);
// 4. 获取并输出结果
aclrtSynchronizeStream(stream);
std::vector<int32_t> results(input_ids.size() + params.max_spec_length);
aclrtMemcpy(results.data(), results.size() * sizeof(int32_t),
output_tokens.deviceData, output_tokens.dataSize,
ACL_MEMCPY_DEVICE_TO_HOST);
std::cout << "生成的token序列: ";
for (auto token : results) {
if (token == 102) break; // 遇到终止符停止
std::cout << token << " ";
}
// 5. 资源清理
aclrtFree(input_tokens.deviceData);
aclrtFree(output_tokens.deviceData);
}
aclrtDestroyStream(stream);
atb::DestroyContext(context);
aclrtResetDevice(0);
aclFinalize();
return 0;
}
