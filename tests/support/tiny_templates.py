"""Chat templates of the tiny tokenizers: conversations, and pairs to be ranked."""

QWEN_CHAT_TEMPLATE = (
    "{%- for message in messages %}"
    "{%- if message.role in ['system', 'user', 'assistant'] %}"
    "{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}"
    "{%- endif %}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}"
    "{{- '<|im_start|>assistant\\n<think>\\n\\n</think>\\n\\n' }}"
    "{%- endif %}"
)
MISTRAL_CHAT_TEMPLATE = (
    "{{- bos_token }}"
    "{%- for message in messages %}"
    "{%- if message.role == 'system' %}"
    "{{- '[SYSTEM_PROMPT]' + message.content + '[/SYSTEM_PROMPT]' }}"
    "{%- elif message.role == 'user' %}{{- '[INST]' + message.content + '[/INST]' }}"
    "{%- elif message.role == 'assistant' %}{{- message.content + eos_token }}{%- endif %}"
    "{%- endfor %}"
)
QWEN_PAIR_TEMPLATE = (
    '{%- set task = messages | selectattr("role", "eq", "system") | map(attribute="content")'
    ' | first | default("Given a web search query, retrieve relevant passages") -%}'
    '{%- set query = messages | selectattr("role", "eq", "query") | map(attribute="content")'
    " | first -%}"
    '{%- set text = messages | selectattr("role", "eq", "document") | map(attribute="content")'
    " | first -%}"
    "<|im_start|>system\n"
    'Judge whether the Document meets the requirements. Note that the answer can only be "yes" or '
    '"no".<|im_end|>\n'
    "<|im_start|>user\n<Instruct>: {{ task }}\n<Query>: {{ query }}\n<Document>: {{ text }}"
    "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
)
"""Built as the chat template of Qwen3-Reranker: roles system, query and document."""
PLAIN_PAIR_TEMPLATE = (
    'question:{{ (messages | selectattr("role", "eq", "query") | first).content }}'
    ' \n passage:{{ (messages | selectattr("role", "eq", "document") | first).content }}'
)
"""Built as the template of llama-nemotron-rerank: words in front of the two texts."""
