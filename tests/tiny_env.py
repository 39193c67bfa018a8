"""A game that can be learned in seconds, behind the part of Procgen's interface the scripts use."""

import pickle

import numpy as np

# The colour of the square on each image says which action is right.
COLOURS = np.array([[255, 60, 60], [60, 255, 60], [60, 60, 255]], dtype=np.uint8)
RIGHT_ACTIONS = np.array([2, 7, 12])
NUM_ACTIONS = 15
SQUARE = 32  # pixels; the image is a grid of 2 x 2 squares
MIN_LENGTH, MAX_LENGTH = 4, 8
MEAN_LENGTH = (MIN_LENGTH + MAX_LENGTH) / 2  # the mean return of a perfect policy
CHANCE = MEAN_LENGTH / NUM_ACTIONS  # the mean return of a uniform policy


class TinyEnv:
    """N games in which the right action is rewarded with 1 and any other with 0.

    An episode lasts 4 to 8 steps, and the next one begins in the step that ends it. With
    `shuffle_rewards`, each step's rewards are permuted among the environments: a control whose
    rewards have the same distribution and say nothing about the own action. With `show_time`, a
    white bar at the lower edge is as long as the episode goes on, so that values can be predicted.
    """

    def __init__(self, num_envs, seed, shuffle_rewards=False, show_time=False):
        self.num, self.shuffle_rewards, self.show_time = num_envs, shuffle_rewards, show_time
        self.random = np.random.RandomState(seed)
        self.reward = np.zeros(num_envs, dtype=np.float32)
        self.first = np.ones(num_envs, dtype=bool)
        self.steps_left = self._lengths()
        self._draw()

    def _lengths(self):
        return self.random.randint(MIN_LENGTH, MAX_LENGTH + 1, self.num)

    def _draw(self):
        """New images, each with a square of a random colour in a random cell of the grid."""
        self.colour = self.random.randint(len(COLOURS), size=self.num)
        cells = self.random.randint(64 // SQUARE, size=(self.num, 2)) * SQUARE
        self.rgb = np.zeros((self.num, 64, 64, 3), dtype=np.uint8)
        for image, (y, x), colour in zip(self.rgb, cells, self.colour, strict=True):
            image[y : y + SQUARE, x : x + SQUARE] = COLOURS[colour]
        if self.show_time:
            for image, steps in zip(self.rgb, self.steps_left, strict=True):
                image[-8:, : 64 * steps // MAX_LENGTH] = 255

    def observe(self):
        return self.reward, {"rgb": self.rgb}, self.first

    def act(self, actions):
        assert actions.shape == (self.num,)
        reward = (actions == RIGHT_ACTIONS[self.colour]).astype(np.float32)
        if self.shuffle_rewards:  # no environment keeps its own
            order = self.random.permutation(self.num)
            reward[order] = reward[np.roll(order, 1)]
        self.reward = reward
        self.steps_left -= 1
        self.first = self.steps_left == 0
        self.steps_left = np.where(self.first, self._lengths(), self.steps_left)
        self._draw()

    def get_state(self):
        """One state of all games, where Procgen has one of each."""
        state = {name: value for name, value in vars(self).items() if name != "random"}
        return [pickle.dumps((state, self.random.get_state()))]

    def set_state(self, states):
        state, random_state = pickle.loads(states[0])
        vars(self).update(state)
        self.random.set_state(random_state)

    def close(self):
        pass
