// The article's two streams and its cache of drafts (section 3.3), completed to a program: between the lines of dashes stands what the
// article has. The draft model alone continues the input, on its own context; a second time, the cache has it.
#include "atb/spec_decode.h"
#include "atb/context.h"
#include <iostream>

static std::vector<int32_t> read(const atb::Tensor &tensor)
{
    std::vector<int32_t> ids(tensor.deviceSize / sizeof(int32_t));
    aclrtMemcpy(ids.data(), tensor.deviceSize, tensor.deviceData, tensor.deviceSize, ACL_MEMCPY_DEVICE_TO_HOST);
    return ids;
}

static void print(const char *what, const atb::Tensor &tensor)
{
    std::cout << what;
    for (int32_t id : read(tensor)) {
        std::cout << " " << id;
    }
    std::cout << std::endl;
}

int main()
{
    atb::Context context1, context2;
// ----------------------------------------------------------------
// 创建两个独立的执行流
aclrtStream stream1, stream2;
aclrtCreateStream(&stream1);
aclrtCreateStream(&stream2);
// 草稿模型和目标模型分别绑定到不同流
context1.SetExecuteStream(stream1); // 草稿模型上下文
context2.SetExecuteStream(stream2); // 目标模型上下文
// ----------------------------------------------------------------
    atb::SpecDecodeParam params;
    params.target_model_path = "models/draft_bert.onnx";
    atb::SpecDecodeOp draft_op;
    draft_op.Init(params, &context1);
    params.draft_model_path = "models/draft_bert.onnx";
    params.target_model_path = "models/target_bert.onnx";
    atb::SpecDecodeOp spec_op;
    spec_op.Init(params, &context2);

    const std::vector<int32_t> input_ids = {101, 2043, 2003};
    atb::Tensor input_tokens;
    atb::CreateTensor(ACL_INT32, {1, static_cast<int64_t>(input_ids.size())}, input_tokens);
    aclrtMemcpy(input_tokens.deviceData, input_tokens.deviceSize, input_ids.data(), input_ids.size() * sizeof(int32_t),
                ACL_MEMCPY_HOST_TO_DEVICE);
    int passes = 0;
    const auto draft_forward = [&](const atb::Tensor &tokens) {
        atb::Tensor output;
        draft_op.Forward(tokens, output, &context1);
        passes += 1;
        return output;
    };
// ----------------------------------------------------------------
// 使用ATB的缓存管理器
atb::CacheManager cache;
cache.Init("draft_cache", 1024*1024); // 1MB缓存空间
// ----------------------------------------------------------------
    for (int round = 0; round < 2; ++round) {
        std::cout << (cache.Hit(input_tokens) ? "hit" : "miss") << std::endl;
// ----------------------------------------------------------------
// 在草稿模型前向计算前检查缓存
if (cache.Hit(input_tokens)) {
auto cached_output = cache.Get(input_tokens);
// 使用缓存结果
} else {
auto draft_output = draft_forward(input_tokens);
cache.Put(input_tokens, draft_output);
}
// ----------------------------------------------------------------
    }
    std::cout << "passes " << passes << std::endl;
    print("draft", cache.Get(input_tokens));

    atb::Tensor output_tokens;
    spec_op.Forward(input_tokens, output_tokens, &context2);
    print("target", output_tokens);
    aclrtFree(output_tokens.deviceData);
    aclrtFree(input_tokens.deviceData);
    aclrtDestroyStream(stream1);
    aclrtDestroyStream(stream2);
    return 0;
}
