"""What jinja2, set up as the Hugging Face library sets it up, makes of chat templates.

The templates are written here in the manner of published ones, one for each family of constructs that those use. The
templates of the models that tests load come out of their files, which `SPEC_MODELS` or the user's cache has, and only
what they render to is kept.
"""

import json
import os
import pathlib
import sys

import gguf
import jinja2
import jinja2.ext
import jinja2.sandbox

TEMPLATES = {
    "chatml-tools": """
{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages and messages[0]['role'] == 'system' %}
        {{- messages[0].content + '\\n\\n' }}
    {%- endif %}
    {{- "Functions:\\n<tools>" }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\\n</tools><|im_end|>\\n" }}
{%- elif messages[0]['role'] == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}
{%- else %}
    {{- '<|im_start|>system\\nBe brief.<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) or (message.role == "assistant" and not message.tool_calls) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {{- '<|im_start|>' + message.role }}
        {%- if message.content %}
            {{- '\\n' + message.content }}
        {%- endif %}
        {%- for call in message.tool_calls %}
            {%- if call.function is defined %}
                {%- set call = call.function %}
            {%- endif %}
            {{- '\\n<call>\\n{"name": "' }}
            {{- call.name }}
            {{- '", "arguments": ' }}
            {{- call.arguments | tojson }}
            {{- '}\\n</call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if (loop.index0 == 0) or (messages[loop.index0 - 1].role != "tool") %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\\n<result>\\n' + message.content + '\\n</result>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}
            {{- '<|im_end|>\\n' }}
        {%- endif %}
    {%- elif message.role is not defined %}
        {{- raise_exception('a message has no role') }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
""",
    "chatml-one-line": "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\\nHelp.<|im_end|>\\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}",
    "headers": """{{- bos_token }}
{%- if not date_string is defined %}
    {%- set date_string = "1 Jan 2025" %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{%- if tools is not none %}
    {{- "Environment: tools\\n" }}
{%- endif %}
{{- "Today: " + date_string + "\\n\\n" }}
{%- if tools is not none %}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\\n\\n" }}
    {%- endfor %}
{%- endif %}
{{- system_message }}
{{- "<|eot_id|>" }}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}
            {{- raise_exception("only one call at once") }}
        {%- endif %}
        {%- set tool_call = message.tool_calls[0].function %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' -}}
        {{- tool_call.name + "(" }}
        {%- for arg_name, arg_val in tool_call.arguments | items %}
            {{- arg_name + '="' + arg_val|string + '"' }}
            {%- if not loop.last %}
                {{- ", " }}
            {%- endif %}
        {%- endfor %}
        {{- ")<|eom_id|>" }}
    {%- elif message.role == "tool" or message.role == "ipython" %}
        {{- "<|start_header_id|>ipython<|end_header_id|>\\n\\n" }}
        {%- if message.content is mapping or message.content is iterable %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
        {{- "<|eot_id|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
""",
    "instructions": """
{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- set ns = namespace() %}
{%- set ns.index = 0 %}
{%- for message in loop_messages %}
    {%- if not (message.role == "tool" or (message.tool_calls is defined and message.tool_calls is not none)) %}
        {%- if (message["role"] == "user") != (ns.index % 2 == 0) %}
            {{- raise_exception("roles must alternate") }}
        {%- endif %}
        {%- set ns.index = ns.index + 1 %}
    {%- endif %}
{%- endfor %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if tools is not none and (message == loop_messages[-1]) %}
            {{- "[TOOLS] [" }}
            {%- for tool in tools %}
                {%- set tool = tool.function %}
                {{- '{"type": "function", "function": {' }}
                {%- for key, val in tool.items() if key != "return" %}
                    {%- if val is string %}
                        {{- '"' + key + '": "' + val + '"' }}
                    {%- else %}
                        {{- '"' + key + '": ' + val|tojson }}
                    {%- endif %}
                    {%- if not loop.last %}
                        {{- ", " }}
                    {%- endif %}
                {%- endfor %}
                {{- "}}" }}
                {%- if not loop.last %}
                    {{- ", " }}
                {%- else %}
                    {{- "]" }}
                {%- endif %}
            {%- endfor %}
            {{- "[/TOOLS]" }}
        {%- endif %}
        {%- if loop.last and system_message is defined %}
            {{- "[INST] " + system_message + "\\n\\n" + message["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST] " + message["content"] + "[/INST]" }}
        {%- endif %}
    {%- elif message.tool_calls is defined and message.tool_calls is not none %}
        {{- "[CALLS] " + message.tool_calls | map(attribute="function") | map(attribute="name") | join(", ") + eos_token }}
    {%- elif message["role"] == "assistant" %}
        {{- " " + message["content"]|trim + eos_token}}
    {%- elif message["role"] == "tool" %}
        {%- if message.content is defined and message.content.content is defined %}
            {%- set content = message.content.content %}
        {%- else %}
            {%- set content = message.content %}
        {%- endif %}
        {{- '[RESULT] {"content": ' + content|string + "}[/RESULT]" }}
    {%- else %}
        {{- raise_exception("roles are user, assistant, system and tool") }}
    {%- endif %}
{%- endfor %}
""",
    "turns": """{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- if messages[0]['content'] is string -%}
        {%- set prefix = messages[0]['content'] + '

' -%}
    {%- else -%}
        {%- set prefix = messages[0]['content'][0]['text'] + '

' -%}
    {%- endif -%}
    {%- set rest = messages[1:] -%}
{%- else -%}
    {%- set prefix = "" -%}
    {%- set rest = messages -%}
{%- endif -%}
{%- for message in rest -%}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
        {{ raise_exception("turns must alternate") }}
    {%- endif -%}
    {%- if (message['role'] == 'assistant') -%}
        {%- set role = "model" -%}
    {%- else -%}
        {%- set role = message['role'] -%}
    {%- endif -%}
    {{ '<start_of_turn>' + role + '
' + (prefix if loop.first else "") }}
    {%- if message['content'] is string -%}
        {{ message['content'] | trim }}
    {%- elif message['content'] is iterable -%}
        {%- for item in message['content'] -%}
            {%- if item['type'] == 'image' -%}
                {{ '<image>' }}
            {%- elif item['type'] == 'text' -%}
                {{ item['text'] | trim }}
            {%- endif -%}
        {%- endfor -%}
    {%- else -%}
        {{ raise_exception("content has no known type") }}
    {%- endif -%}
    {{ '<end_of_turn>
' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{'<start_of_turn>model
'}}
{%- endif -%}
""",
    "bare-lines": """{% for message in messages %}
{% if message['role'] == 'user' %}
{{ '<|user|>
' + message['content'] + eos_token }}
{% elif message['role'] == 'system' %}
{{ '<|system|>
' + message['content'] + eos_token }}
{% elif message['role'] == 'assistant' %}
{{ '<|assistant|>
'  + message['content'] + eos_token }}
{% endif %}
{% if loop.last and add_generation_prompt %}
{{ '<|assistant|>' }}
{% endif %}
{% endfor %}
""",
    "ends": "{{ bos_token }}{% for message in messages %}{% if (message['role'] in ['user', 'system']) %}{{'<|' + message['role'] + '|>' + '\\n' + message['content'] + '<|end|>' + '\\n'}}{% if loop.last %}{{ '<|assistant|>\\n' }}{% endif %}{% elif (message['role'] == 'assistant') %}{{message['content'] + '<|end|>' + '\\n'}}{% endif %}{% endfor %}",
    "state": """{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}{% set ns = namespace(is_first=false, is_tool=false, is_output_first=true, system_prompt='', is_first_sp=true) %}{%- for message in messages %}{%- if message['role'] == 'system' %}{%- if ns.is_first_sp %}{% set ns.system_prompt = ns.system_prompt + message['content'] %}{% set ns.is_first_sp = false %}{%- else %}{% set ns.system_prompt = ns.system_prompt + '\\n\\n' + message['content'] %}{%- endif %}{%- endif %}{%- endfor %}{{ bos_token }}{{ ns.system_prompt }}{%- for message in messages %}{% set content = message['content'] %}{%- if message['role'] == 'user' %}{%- set ns.is_tool = false -%}{{'<｜User｜>' + content + '<｜Assistant｜>'}}{%- endif %}{%- if message['role'] == 'assistant' %}{% if content is not none and '</think>' in content %}{% set content = content.split('</think>')[-1] %}{% endif %}{%- if message.get('tool_calls') %}{%- for tool in message['tool_calls'] %}{{'<｜call｜>' + tool['type'] + '<｜sep｜>' + tool['function']['name'] + '\\n```json\\n' + tool['function']['arguments']|tojson + '\\n```<｜end｜>'}}{%- endfor %}{%- else %}{{content + '<｜end▁of▁sentence｜>'}}{%- endif %}{%- endif %}{%- if message['role'] == 'tool' %}{%- set ns.is_tool = true -%}{{'<｜output｜>' + content + '<｜end｜>'}}{%- endif %}{%- endfor -%}{% if ns.is_tool %}{{'<｜outputs｜>'}}{% endif %}{% if add_generation_prompt and not ns.is_tool %}{{'<｜Assistant｜>'}}{% endif %}""",
    "thinking": """
{%- set ns = namespace(multi_step=true, last_query=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step and message.role == "user" and message.content is string and not(message.content.startswith('<result>') and message.content.endswith('</result>')) %}
        {%- set ns.multi_step = false %}
        {%- set ns.last_query = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.content is string %}
        {%- set content = message.content %}
    {%- else %}
        {%- set content = '' %}
    {%- endif %}
    {%- if message.role == "assistant" %}
        {%- set thought = '' %}
        {%- if '</think>' in content %}
            {%- set thought = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query and (loop.last or thought) %}
            {{- 'A:<think>\\n' + thought.strip('\\n') + '\\n</think>\\n\\n' + content }}
        {%- else %}
            {{- 'A:' + content }}
        {%- endif %}
    {%- else %}
        {{- message.role|upper ~ ':' ~ content }}
    {%- endif %}
    {{- '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- 'A:' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}
""",
    "macros": """
{%- macro type_name(schema) -%}
    {%- if schema.type is string -%}
        {{- {"string": "str", "integer": "int", "number": "float", "boolean": "bool"}[schema.type] or schema.type -}}
    {%- elif schema.type is sequence -%}
        {{- schema.type | join(" | ") -}}
    {%- else -%}
        any
    {%- endif -%}
{%- endmacro -%}
{%- macro describe(tool, depth=1) %}
{%- set properties = tool.function.parameters.properties %}
{{- "def " ~ tool.function.name ~ "(" }}
{%- for name, schema in properties.items() %}
{{- name ~ ": " ~ type_name(schema) }}
{%- if name not in tool.function.parameters.get("required", []) %}{{ " = None" }}{% endif %}
{%- if not loop.last %}{{ ", " }}{% endif %}
{%- endfor %}
{{- "):\\n" ~ "    " * depth ~ '"""' ~ tool.function.description | default("-") ~ '"""\\n' }}
{%- endmacro -%}
{%- for tool in tools or [] %}{{ describe(tool) }}{% endfor %}
{%- set roles = {"user": "U", "assistant": "A", "system": "S", "tool": "T"} %}
{%- for m in messages if m.content %}
{{ roles[m.role] }}> {{ (m.content if m.content is string else m.content | tojson) | replace("\\n", "\\\\n") }}
{%- endfor %}
{%- for m in messages | selectattr("role", "equalto", "tool") | list %}
[{{ loop.index }}/{{ loop.length }}] {{ m.name | default("anonymous", true) | title }}
{%- endfor %}
{%- if add_generation_prompt %}

A>{% endif %}
""",
    "controls": """{% for m in messages %}{% if m.role == 'system' %}{% continue %}{% endif %}{% if loop.index > 4 %}{% break %}{% endif %}[{{ loop.revindex }}{{ '<' ~ loop.previtem.role if loop.previtem is defined else '|' }}{{ loop.nextitem.role ~ '>' if loop.nextitem is defined else '|' }}{{ loop.cycle('x', 'y') }}]{{ m.content }}
{% else %}nobody speaks
{% endfor %}{% set text %}{% for m in messages %}{{ m.role[:1] }}{{ '' if loop.last else '-' }}{% endfor %}{% endset %}{{ text }}{% filter upper %}{{ text }}{% endfilter %}{% raw %}{{ raw }}{% endraw %}
""",
    "values": """{{ true }} {{ false }} {{ none }} {{ 1.0 }} {{ 1e100 }} {{ 0.00001 }} {{ 123456789012345678 }} {{ 7 // 2 }} {{ 7 / 2 }} {{ 2 ** 10 }} {{ -7 % 3 }}
{{ messages[0] }}
{{ [1, 'two', none, true, 2.5, "it's"] }} {{ {'a': [1], "b": {}} }}
{{ tools | tojson }} {{ tools | tojson(indent=2) }} {{ 'é<>&"\\n' | tojson }} {{ [1.0, 1e-7, 1e16, none, true] | tojson }}
{{ messages[-1].content is string }} {{ messages is iterable }} {{ messages[0] is mapping }} {{ 1 is number }} {{ 'x' in 'xyz' }} {{ 'role' in messages[0] }} {{ messages[0].absent is defined }}
{{ "a,b,,c".split(",") }} {{ " x ".strip() }}| {{ "abc"[1:] }} {{ "abc"[-1] }} {{ "abc"[::-1] }} {{ "%s-%d" % ("a", 3) if false else "fmt" }} {{ "x" * 3 }} {{ [1, 2] + [3] }}
{{ messages | length }} {{ messages | map(attribute='role') | list }} {{ [3, 1, 2] | sort | join('-') }} {{ "word one two".title() }} {{ "a-b".replace("-", "+") }} {{ 'ABC'.lower() }} {{ 'x y'.split() | first }} {{ [1, 2, 3] | last }} {{ "{}".format("f") if false else "" }}
""",
    "whitespace": """   {# a comment #}
  {% if messages %}
    indented
	{% for m in messages %}
  {{ m.role }}:  
   {%- if m.content %} tight {%- endif %}

   {%+ if true %} kept {% endif +%}
tail   {{- '!' -}}   
  next
  {# another -#}   

  {% endfor %}
  {% endif %}
end


""",
    "tracked": """{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{{ eos_token }}{% endgeneration %}{% else %}{{ m.role }}: {{ m.content }}{% endif %}
{%- generation -%}  {%- endgeneration %}

{% endfor %}""",
}

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a place, in °C & <short>",
        "parameters": {
            "type": "object",
            "properties": {
                "place": {"type": "string", "description": "a town"},
                "days": {"type": "integer"},
                "exact": {"type": ["boolean", "null"]},
            },
            "required": ["place"],
        },
    },
}
CLOCK = {"type": "function", "function": {"name": "clock", "parameters": {"type": "object", "properties": {}}}}


def call(name, arguments):
    return {"id": "call_1", "type": "function", "function": {"name": name, "arguments": arguments}}


CONVERSATIONS = {
    "user": {"messages": [{"role": "user", "content": "Hi"}]},
    "system": {"messages": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hi"}]},
    "turns": {
        "messages": [
            {"role": "user", "content": "One?"},
            {"role": "assistant", "content": "Two."},
            {"role": "user", "content": "Three?"},
            {"role": "assistant", "content": "Four."},
            {"role": "user", "content": "Five?"},
        ]
    },
    "unicode": {
        "messages": [
            {"role": "system", "content": "推测解码 — naïve 😀"},
            {"role": "user", "content": "{{ 1 + 1 }} {% if x %} <|im_start|> & <b> \"q\" 'a' \\n é\u0301 \u2028"},
        ]
    },
    "blanks": {
        "messages": [
            {"role": "user", "content": "  \n two spaces \t\n\n"},
            {"role": "assistant", "content": ""},
            {"role": "user", "content": "\n"},
        ]
    },
    "thoughts": {
        "messages": [
            {"role": "user", "content": "Why?"},
            {"role": "assistant", "content": "<think>\nHm.\n</think>\n\nBecause."},
            {"role": "user", "content": "Really?"},
            {"role": "assistant", "content": "<think>Sure</think>Yes."},
        ],
        "variables": {"enable_thinking": False},
    },
    "tools": {
        "messages": [
            {"role": "system", "content": "Use tools."},
            {"role": "user", "content": "Weather in Köln?"},
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [call("weather", {"place": "Köln", "days": 3, "exact": None, "low": -1.5})],
            },
            {"role": "tool", "name": "weather", "content": '{"temperature": 7}'},
            {"role": "user", "content": "Thanks!"},
        ],
        "tools": [WEATHER, CLOCK],
    },
    "no-content": {
        "messages": [
            {"role": "user", "content": "Time?"},
            {"role": "assistant", "content": None, "tool_calls": [call("clock", {}), call("weather", {"b": 1, "a": [True]})]},
            {"role": "tool", "content": "12:00"},
            {"role": "tool", "content": "7"},
        ],
        "tools": [CLOCK],
    },
    "parts": {
        "messages": [
            {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": " What is this? "}]},
            {"role": "assistant", "content": "A cat."},
        ]
    },
    "no-role": {"messages": [{"content": "Hi"}]},
    "no-text": {"messages": [{"role": "user"}]},
    "wrong-order": {"messages": [{"role": "assistant", "content": "Hi"}, {"role": "assistant", "content": "Ho"}]},
    "strange-role": {"messages": [{"role": "narrator", "content": "It rains."}], "variables": {"date_string": "24 Dec 2031"}},
    "nobody": {"messages": []},
}


class Generation(jinja2.ext.Extension):
    """The tag marks what the model said, which changes nothing in the text."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller()


def environment():
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    made = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    made.filters["tojson"] = tojson
    made.globals["raise_exception"] = raise_exception
    return made


def render(source, conversation, add_generation_prompt, tokens):
    try:
        return environment().from_string(source).render(
            messages=conversation["messages"],
            tools=conversation.get("tools"),
            documents=None,
            add_generation_prompt=add_generation_prompt,
            **tokens,
            **conversation.get("variables", {}),
        )
    except (jinja2.exceptions.TemplateError, TypeError, KeyError, IndexError, ValueError, AttributeError):
        return None


def results(source, tokens):
    """Text, or null for a refusal, without and with the beginning of an answer."""
    return {
        name: [render(source, conversation, prompt, tokens) for prompt in (False, True)]
        for name, conversation in CONVERSATIONS.items()
    }


def model_template(path):
    fields = gguf.GGUFReader(path).fields
    texts = fields["tokenizer.ggml.tokens"].contents()

    def token(name):
        field = fields.get(f"tokenizer.ggml.{name}_token_id")
        return "" if field is None else texts[field.contents()]

    return fields["tokenizer.chat_template"].contents(), {"bos_token": token("bos"), "eos_token": token("eos")}


def main(folder):
    tokens = {"bos_token": "<s>", "eos_token": "</s>"}
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    models = pathlib.Path(os.environ.get("SPEC_MODELS") or f"{cache}/spec/models")
    # The two Qwen models have different templates.
    qwen = [f"qwen2.5-coder-{size}-instruct-q4_k_m" for size in ("0.5b", "1.5b")]
    stems = ["smollm2-135m-instruct-q4_1", *qwen]
    output = {
        "source": f"jinja2 {jinja2.__version__}",
        "conversations": CONVERSATIONS,
        "templates": [
            {"name": name, "source": source, "results": results(source, tokens)} for name, source in TEMPLATES.items()
        ],
        "models": {stem: results(*model_template(models / f"{stem}.gguf")) for stem in stems},
    }
    text = json.dumps(output, ensure_ascii=False, indent=1)
    (pathlib.Path(folder) / "rendered.json").write_text(text + "\n", encoding="utf-8")


main(sys.argv[1])
