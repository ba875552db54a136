// What goes wrong is a status, and leaves the program able to go on; what was begun is ended.
#include "atb/spec_decode.h"
#include "atb/context.h"
#include <iostream>

static int failures = 0;

static void expect(bool is_true, const char *claim)
{
    if (!is_true) {
        std::cout << "not so: " << claim << std::endl;
        failures += 1;
    }
}

static atb::Tensor tensor(const std::vector<int32_t> &ids)
{
    atb::Tensor made;
    atb::CreateTensor(ACL_INT32, {1, static_cast<int64_t>(ids.size())}, made);
    aclrtMemcpy(made.deviceData, made.deviceSize, ids.data(), ids.size() * sizeof(int32_t), ACL_MEMCPY_HOST_TO_DEVICE);
    return made;
}

static std::vector<int32_t> take(atb::Tensor &made)
{
    std::vector<int32_t> ids(made.deviceSize / sizeof(int32_t));
    aclrtMemcpy(ids.data(), made.deviceSize, made.deviceData, made.deviceSize, ACL_MEMCPY_DEVICE_TO_HOST);
    aclrtFree(made.deviceData);
    made = atb::Tensor{};
    return ids;
}

static void operations(atb::Context &context)
{
    atb::SpecDecodeParam params;
    params.target_model_path = "models/nowhere.onnx";
    params.draft_model_path = "models/draft_bert.onnx";
    atb::SpecDecodeOp op;
    atb::Tensor input = tensor({101, 2043, 2003, 102});
    atb::Tensor output;
    expect(op.Forward(input, output, &context) != 0, "Forward before Init fails");
    take(output);
    expect(op.Init(params, &context) != 0, "a file that is absent is refused");
    expect(op.Forward(input, output, &context) != 0, "Forward behind a failed Init fails");
    expect(output.deviceSize == 4 * (4 + 5), "an output that failed has its size");
    take(output);

    params.target_model_path = "models/target_bert.onnx";
    expect(op.Init<atb::Context>(params, nullptr) != 0, "a context is wanted");
    params.max_spec_length = 0;
    expect(op.Init(params, &context) != 0, "drafts of no length are refused");
    params.max_spec_length = 5;
    params.eos_token_id = 2112;
    expect(op.Init(params, &context) != 0, "an end token beyond the vocabulary is refused");
    params.eos_token_id = -1;
    expect(op.Init(params, &context) == 0, "the models are loaded");

    // The first id that the model gives ends the text: nothing is generated, and the size stays.
    expect(op.Forward(input, output, &context) == 0, "it generates");
    const int32_t first = take(output)[0];
    params.eos_token_id = first;
    expect(op.Init(params, &context) == 0, "Init may be called again");
    expect(op.Forward(input, output, &context) == 0 && op.GetStats().generated == 0, "nothing is generated");
    expect(take(output) == std::vector<int32_t>(9, first), "the end token fills all");

    atb::Tensor beyond = tensor({2112});
    expect(op.Forward(beyond, output, &context) != 0, "an id beyond the vocabulary is refused");
    expect(take(output) == std::vector<int32_t>(6, first), "a failure gives end tokens");
    atb::Tensor negative = tensor({-1});
    expect(op.Forward(negative, output, &context) != 0, "a negative id is refused");
    take(output);
    atb::Tensor floats = input;
    floats.desc.dtype = ACL_FLOAT;
    expect(op.Forward(floats, output, &context) == 6, "ids are int32");
    take(output);
    expect(op.Forward(atb::Tensor{}, output, &context) != 0, "a tensor without memory is refused");
    take(output);

    // The same seed gives the same text under the lossy rule too.
    params.eos_token_id = -1;
    params.epsilon = 0.25;
    expect(op.SetParam(params) != 0, "another end token needs Init");
    expect(op.Init(params, &context) == 0, "a tolerance is a choice");
    expect(op.Forward(input, output, &context) == 0 && op.GetStats().drafted > 0, "it drafts");
    const std::vector<int32_t> drawn = take(output);
    expect(op.Forward(input, output, &context) == 0 && take(output) == drawn, "draws follow the seed");

    for (atb::Tensor *made : {&input, &beyond, &negative}) {
        aclrtFree(made->deviceData);
    }
    atb::Tensor none;
    expect(atb::CreateTensor(ACL_INT32, {}, none) == 8 && atb::CreateTensor(ACL_INT32, {1, -1}, none) == 8, "dimensions are positive");
    expect(atb::CreateTensor(ACL_STRING, {1}, none) == 6, "elements have a size");
    // Twice the whole address space, and more than the device has.
    expect(atb::CreateTensor(ACL_INT64, {INT64_MAX, 4}, none) == 8, "sizes do not overflow");
    expect(atb::CreateTensor(ACL_INT8, {INT64_MAX / 2}, none) != 0 && none.deviceData == nullptr, "memory can be short");
}

static void caches()
{
    atb::CacheManager cache;
    expect(cache.Init("empty", 0) != 0, "a cache has room");
    expect(cache.Init("small", 4 * (2 + 3) + 4 * (2 + 3)) == 0, "room for two");
    atb::Tensor keys[] = {tensor({1, 2}), tensor({1, 3}), tensor({1, 4})};
    expect(cache.Put(keys[0], tensor({10, 11, 12})) == 0 && cache.Put(keys[1], tensor({20, 21, 22})) == 0, "two fit");
    expect(cache.Hit(keys[0]) && cache.Hit(keys[1]) && !cache.Hit(keys[2]), "what was put is there");
    expect(cache.Get(keys[2]).deviceData == nullptr, "what was not put is not");
    expect(cache.Get(keys[0]).deviceData != nullptr, "and was used last");
    expect(cache.Put(keys[0], cache.Get(keys[0])) != 0, "memory has one owner");
    expect(cache.Put(keys[2], tensor({30, 31, 32})) == 0, "a third takes a place");
    expect(cache.Hit(keys[0]) && !cache.Hit(keys[1]) && cache.Hit(keys[2]), "of what was used least recently");
    expect(cache.Put(keys[2], tensor({33, 34, 35})) == 0, "a new value takes the old one's place");
    atb::Tensor shared = cache.Get(keys[2]);
    std::vector<int32_t> ids(3);
    aclrtMemcpy(ids.data(), 12, shared.deviceData, shared.deviceSize, ACL_MEMCPY_DEVICE_TO_HOST);
    expect(ids == std::vector<int32_t>({33, 34, 35}), "it is the new one");
    atb::Tensor large = tensor({1, 2, 3, 4, 5, 6, 7, 8, 9});
    expect(cache.Put(keys[1], large) != 0 && !cache.Hit(keys[1]), "what never fits is refused");
    aclrtFree(large.deviceData);
    for (atb::Tensor &key : keys) {
        aclrtFree(key.deviceData);
    }
}

int main()
{
    {
        atb::Context context;
        operations(context);
        caches();
    }
    // AscendCL was ended, and can be begun again; when the program itself began it, it goes on.
    expect(aclFinalize() != 0, "it was ended");
    expect(aclInit(nullptr) == 0 && aclrtSetDevice(0) == 0, "it can be begun again");
    {
        atb::Context context;
        expect(context.GetStatus() == 0, "a context joins");
    }
    int32_t device = -1;
    expect(aclrtGetDevice(&device) == 0 && device == 0, "the program's device is still current");
    expect(aclrtResetDevice(0) == 0 && aclFinalize() == 0, "and is its own to end");
    return failures == 0 ? 0 : 1;
}
