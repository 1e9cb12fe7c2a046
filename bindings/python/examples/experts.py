#!/usr/bin/python3
"""Score a text, stream an answer, and see which experts did the work. Read it as a notebook: each part stands alone.

experts.py [MODEL [PICTURE.png]]        the picture needs matplotlib, the scores numpy
"""
import math
import sys

import afmoe

path = sys.argv[1] if len(sys.argv) > 1 else 'models/pico-q8_0.gguf'
picture = sys.argv[2] if len(sys.argv) > 2 else 'experts.png'
model = afmoe.Model.open(path)
session = model.session()
tokenizer = model.tokenizer
print(f'{path}: {model.info.n_parameters / 1e6:.1f} million parameters, {model.info.n_layers} layers, '
      f'{model.info.n_experts_per_token} of {model.info.n_experts} experts for each token')

# %% Score: how likely was each word? One pass over the text gives all of them.
text = 'Once upon a time, Jack walked to the forest.'
tokens = tokenizer.encode(text)
scores = session.score(tokens)
for token, score in zip(tokens[1:], scores):
    print(f'{score:8.3f}  {tokenizer.decode(token)!r}')
print(f'perplexity {math.exp(-scores.mean()):.2f}')

# %% Stream: an answer as it comes. The timeline keeps the prompt, so asking again computes only what is new.
prompt = tokenizer.apply_chat_template([{'role': 'user', 'content': 'What is the capital of France?'}],
                                       add_generation_prompt=True)
for piece in session.stream(prompt, max_new_tokens=100):
    print(piece.text, end='', flush=True)
print(f'\n{piece.generation_tokens} tokens, {piece.generation_tps:.0f} a second, ended by {piece.finish_reason}')

# %% Load: the experts chosen for every token of a story, in every mixture layer.
story = tokenizer.encode('Once upon a time, ') + session.generate('Once upon a time, ', max_new_tokens=300).tokens
ids = session.sync(story, experts=True).expert_ids
session.rewind(0)
ids = session.append(story, experts=True).expert_ids  # [tokens, mixture layers, experts per token]
load = [[int((ids[:, layer] == expert).sum()) for expert in range(model.info.n_experts)]
        for layer in range(ids.shape[1])]
for layer, counts in enumerate(load):
    print(f'layer {model.info.n_dense_layers + layer}: {counts}')

# %% Plot it.
try:
    import matplotlib
except ImportError:
    sys.exit('without matplotlib there is no picture')
matplotlib.use('Agg')
from matplotlib import pyplot

figure, axes = pyplot.subplots(figsize=(8, 3))
image = axes.imshow([[count / sum(counts) for count in counts] for counts in load], aspect='auto', cmap='viridis')
axes.set(title=f'Share of {len(story)} tokens', xlabel='expert', ylabel='layer',
         yticks=range(len(load)), yticklabels=range(model.info.n_dense_layers, model.info.n_layers))
figure.colorbar(image)
figure.savefig(picture, bbox_inches='tight')
print(f'wrote {picture}')
session.close()
model.close()
