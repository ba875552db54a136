"""Drives a running server with OpenAI's own Python package: every endpoint, streaming and not.

    client.py BASE_URL KEY

`cargo xtask clients` starts the server and this. Each check is a function; all of them run, and one that fails fails the script.
"""

import json
import math
import re
import sys
import time
import traceback
import urllib.request

import openai

BASE, KEY = sys.argv[1:3]


def wait_until_ready():
    deadline = time.monotonic() + 120
    while True:
        try:
            with urllib.request.urlopen(BASE + "/ready", timeout=10):
                return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


wait_until_ready()
client = openai.OpenAI(base_url=f"{BASE}/v1", api_key=KEY, max_retries=0, timeout=300)
MODEL = client.models.list().data[0].id
QUESTION = [{"role": "user", "content": "Name three colours of the rainbow."}]
CHECKS = []

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "enum": ["Paris", "Suzhou"]}, "days": {"type": "integer", "enum": [1, 2, 3]}},
            "required": ["city", "days"],
            "additionalProperties": False,
        },
    },
}


def check(function):
    CHECKS.append(function)
    return function


def chat(messages=QUESTION, **options):
    options = {"max_tokens": 24, "temperature": 0, **options}
    return client.chat.completions.create(model=MODEL, messages=messages, **options)


def complete(prompt, **options):
    options = {"max_tokens": 16, "temperature": 0, **options}
    return client.completions.create(model=MODEL, prompt=prompt, **options)


def text_of(stream):
    return "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)


def raw(path, body=None):
    """The endpoints that are not OpenAI's."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(BASE + path, data=data, headers=headers), timeout=60) as response:
        return response.read().decode()


def gauge(name_part):
    """The sum of the metrics whose name has this in it."""
    lines = [line for line in raw("/metrics").splitlines() if not line.startswith("#")]
    values = [float(line.rsplit(" ", 1)[1]) for line in lines if name_part in line.split("{")[0].split(" ")[0]]
    assert values, f"/metrics has nothing called *{name_part}*"
    return sum(values)


def refused(kind, function, *words):
    try:
        function()
    except kind as error:
        for word in words:
            assert word in str(error), f"{word!r} is not in {error}"
        return error
    raise AssertionError(f"no {kind.__name__} was raised")


@check
def models_are_listed():
    listed = client.models.list().data
    assert len(listed) >= 1 and listed[0].object == "model", listed


@check
def a_completion_has_text_and_usage_that_adds_up():
    answer = complete("The capital of France is")
    assert answer.choices[0].text and answer.choices[0].finish_reason in ("length", "stop"), answer
    usage = answer.usage
    assert usage.prompt_tokens > 0 and 0 < usage.completion_tokens <= 16, usage
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens, usage


@check
def several_prompts_and_prompts_of_ids_are_understood():
    prompts = ["Once upon a time", "def main():"]
    alone = [complete(prompt).choices[0].text for prompt in prompts]
    together = complete(prompts)
    assert [choice.text for choice in sorted(together.choices, key=lambda choice: choice.index)] == alone
    ids = json.loads(raw("/tokenize", {"prompt": prompts[0]}))["tokens"]
    assert complete(ids).choices[0].text == alone[0]


@check
def a_streamed_completion_is_the_whole_one():
    whole = complete("Once upon a time").choices[0].text
    chunks = list(complete("Once upon a time", stream=True))
    assert "".join(chunk.choices[0].text for chunk in chunks if chunk.choices) == whole


@check
def a_streamed_chat_is_the_whole_one_and_ends_with_usage():
    whole = chat()
    chunks = list(chat(stream=True, stream_options={"include_usage": True}))
    assert text_of(chunks) == whole.choices[0].message.content
    assert chunks[0].choices[0].delta.role == "assistant", chunks[0]
    reasons = [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices and chunk.choices[0].finish_reason]
    assert reasons == [whole.choices[0].finish_reason], reasons
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens, chunks[-1]


@check
def characters_of_several_bytes_are_never_split():
    options = {"messages": [{"role": "user", "content": "用中文说你好。"}], "max_tokens": 40}
    whole = chat(**options).choices[0].message.content
    assert text_of(chat(stream=True, **options)) == whole


@check
def a_seed_gives_the_same_choices_twice():
    options = {"temperature": 1.2, "n": 3, "max_tokens": 12}
    texts = [[c.message.content for c in chat(seed=seed, **options).choices] for seed in (7, 7, 8)]
    assert len(texts[0]) == 3 and texts[0] == texts[1], texts
    assert len(set(texts[0] + texts[2])) > 1, f"sampling never differs: {texts}"


@check
def choices_that_stream_together_carry_their_index():
    options = {"temperature": 1.2, "n": 2, "max_tokens": 12, "seed": 5}
    whole = {c.index: c.message.content for c in chat(**options).choices}
    streamed = {0: "", 1: ""}
    for chunk in chat(stream=True, **options):
        for choice in chunk.choices:
            streamed[choice.index] += choice.delta.content or ""
    assert streamed == whole, (streamed, whole)


@check
def a_stop_string_ends_the_text_before_it():
    whole = chat(max_tokens=32).choices[0].message.content
    words = re.findall(r"[a-zA-Z]{4,}", whole)
    stop = words[len(words) // 2]
    for stream in (False, True):
        answer = chat(max_tokens=32, stop=[stop, "never-said"], stream=stream)
        if stream:
            chunks = list(answer)
            text = text_of(chunks)
            reason = [c.choices[0].finish_reason for c in chunks if c.choices][-1]
        else:
            text, reason = answer.choices[0].message.content, answer.choices[0].finish_reason
        assert text == whole[: whole.index(stop)] and reason == "stop", (text, reason, stop)


@check
def log_probabilities_belong_to_the_text():
    answer = chat(max_tokens=10, logprobs=True, top_logprobs=3)
    content = answer.choices[0].logprobs.content
    said = b"".join(bytes(token.bytes) for token in content).decode()
    assert said.startswith(answer.choices[0].message.content), (said, answer.choices[0].message.content)
    for token in content:
        assert len(token.top_logprobs) == 3, token
        assert token.logprob <= 1e-6 and math.isfinite(token.logprob), token
        assert abs(token.top_logprobs[0].logprob - token.logprob) < 1e-6, f"greedy takes the likeliest: {token}"
    streamed = [t for chunk in chat(max_tokens=10, logprobs=True, top_logprobs=3, stream=True) for c in chunk.choices if c.logprobs for t in c.logprobs.content]
    assert [(t.token, t.logprob) for t in streamed] == [(t.token, t.logprob) for t in content]
    legacy = complete("The capital of France is", logprobs=2, max_tokens=4).choices[0].logprobs
    assert len(legacy.tokens) == len(legacy.token_logprobs) == len(legacy.top_logprobs) == 4, legacy


@check
def a_bias_decides_and_penalties_change_what_repeats():
    token = json.loads(raw("/tokenize", {"prompt": " yes", "add_special_tokens": False}))["tokens"][-1]
    word = json.loads(raw("/detokenize", {"tokens": [token]}))["prompt"]
    assert complete("Is it?", logit_bias={str(token): 100}, max_tokens=3).choices[0].text == word * 3
    prompt = "one one one one one one one one one one"
    plain = complete(prompt).choices[0].text
    assert complete(prompt, frequency_penalty=2, presence_penalty=2).choices[0].text != plain


@check
def json_is_what_the_format_asks_for():
    schema = {
        "type": "object",
        "properties": {"colour": {"type": "string", "enum": ["red", "green"]}, "count": {"type": "integer", "enum": [1, 2]}},
        "required": ["colour", "count"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "json_schema": {"name": "thing", "schema": schema, "strict": True}}
    for options in ({}, {"temperature": 1.5, "seed": 3}, {"extra_body": {"speculation": {"enabled": False}}}):
        value = json.loads(chat(response_format=form, max_tokens=60, **options).choices[0].message.content)
        assert value["colour"] in ("red", "green") and value["count"] in (1, 2), value
    streamed = json.loads(text_of(chat(response_format=form, max_tokens=60, stream=True)))
    assert streamed["colour"] in ("red", "green"), streamed
    answer = chat([{"role": "user", "content": "Answer with a short JSON object that has the key name."}], response_format={"type": "json_object"}, max_tokens=120).choices[0]
    assert answer.message.content.lstrip().startswith("{"), answer
    if answer.finish_reason == "stop":
        assert isinstance(json.loads(answer.message.content), dict), answer


@check
def a_forced_tool_is_called_with_arguments_of_its_schema():
    messages = [{"role": "user", "content": "How will the weather be in Paris on the next 2 days?"}]
    options = {"tools": [WEATHER], "max_tokens": 80}
    for choice in ("required", {"type": "function", "function": {"name": "get_weather"}}):
        answer = chat(messages, tool_choice=choice, **options).choices[0]
        # A small model may call again and again until its limit; the first call is whole in any case.
        call, *more = answer.message.tool_calls
        arguments = json.loads(call.function.arguments)
        assert call.function.name == "get_weather" and arguments["city"] in ("Paris", "Suzhou"), call
        assert answer.finish_reason in ("tool_calls", "stop") or (more and answer.finish_reason == "length"), answer
        name, streamed = None, ""
        for chunk in chat(messages, tool_choice=choice, stream=True, **options):
            for delta in chunk.choices[0].delta.tool_calls or [] if chunk.choices else []:
                if delta.index == 0:
                    name = delta.function.name or name
                    streamed += delta.function.arguments or ""
        assert name == "get_weather" and json.loads(streamed) == arguments, (name, streamed)
    asked = {"role": "assistant", "content": None, "tool_calls": [call.model_dump(exclude_none=True)]}
    messages += [asked, {"role": "tool", "tool_call_id": call.id, "content": "sunny, 21 degrees"}]
    assert chat(messages, tools=[WEATHER], tool_choice="none").choices[0].message.content


@check
def tools_may_be_left_alone():
    messages = [{"role": "user", "content": "Say hello."}]
    answer = chat(messages, tools=[WEATHER], tool_choice="auto").choices[0].message
    assert answer.content or answer.tool_calls, answer
    assert not chat(messages, tools=[WEATHER], tool_choice="none").choices[0].message.tool_calls


@check
def errors_are_the_clients_exceptions():
    refused(openai.BadRequestError, lambda: chat(extra_body={"no_such_field": 1}), "no_such_field")
    refused(openai.BadRequestError, lambda: chat(temperature=-1), "temperature")
    refused(openai.BadRequestError, lambda: chat(n=0), "n")
    refused(openai.BadRequestError, lambda: chat([{"content": "x"}]), "role")
    refused(openai.BadRequestError, lambda: chat(extra_body={"speculation": {"drafter": "oracle"}}), "oracle")
    refused(openai.BadRequestError, lambda: complete("word " * 20000))
    refused(openai.AuthenticationError, lambda: openai.OpenAI(base_url=f"{BASE}/v1", api_key="wrong", max_retries=0).models.list())
    refused(openai.NotFoundError, lambda: client.get("/no/such/path", cast_to=object))


@check
def a_prompt_said_before_is_counted_as_cached():
    messages = [{"role": "user", "content": "Remember this list. " + ", ".join(f"item {n}" for n in range(60))}]
    chat(messages, max_tokens=2)
    usage = chat(messages, max_tokens=2).usage
    assert usage.prompt_tokens_details.cached_tokens > 0, usage
    assert usage.prompt_tokens_details.cached_tokens < usage.prompt_tokens, usage


@check
def a_closed_stream_is_cancelled():
    stream = chat([{"role": "user", "content": "Count from one to five hundred, one number a line."}], max_tokens=1000, stream=True)
    next(iter(stream))
    stream.close()
    deadline = time.monotonic() + 20
    while gauge("requests_running") > 0:
        assert time.monotonic() < deadline, "it is still running 20 seconds after its reader left"
        time.sleep(0.1)


@check
def drafting_changes_no_text_and_happens():
    prompt = "Repeat: a b c d e f g. a b c d e f g. a b c d e f g. a b"
    drafted = 0
    for options in ({}, {"temperature": 0.8, "seed": 11}):
        plain = complete(prompt, max_tokens=40, extra_body={"speculation": {"enabled": False}}, **options)
        for speculation in ({"enabled": True}, {"draft_len": 5}, {"drafter": "none"}):
            answer = complete(prompt, max_tokens=40, extra_body={"speculation": speculation}, **options)
            assert answer.choices[0].text == plain.choices[0].text, (speculation, options)
            drafted += answer.model_extra["speculation"]["drafted"]
        assert plain.model_extra["speculation"]["drafted"] == 0
    assert drafted > 0, "nothing was drafted, so that the equality shows nothing"


@check
def text_comes_back_from_its_tokens():
    text = "naïve 你好 🦀 {x}"
    tokens = json.loads(raw("/tokenize", {"prompt": text, "add_special_tokens": False}))["tokens"]
    assert json.loads(raw("/detokenize", {"tokens": tokens}))["prompt"] == text


@check
def health_and_readiness_are_answered_without_a_key():
    for path in ("/health", "/ready"):
        with urllib.request.urlopen(BASE + path, timeout=10) as response:
            assert response.status == 200


failed = 0
for function in CHECKS:
    name = function.__name__.replace("_", " ")
    try:
        function()
        print(f"ok      {name}")
    except Exception:
        failed += 1
        print(f"FAILED  {name}\n{traceback.format_exc()}")
print(f"{len(CHECKS) - failed} of {len(CHECKS)} checks hold with openai {openai.__version__} for Python")
sys.exit(1 if failed else 0)
