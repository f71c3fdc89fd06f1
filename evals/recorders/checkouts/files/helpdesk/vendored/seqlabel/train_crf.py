# seqlabel 0.3 (MIT): only its viterbi is used, by a script that is not part of this release
import torch


def viterbi(emit, trans):
    score, back = emit[0], []
    for e in emit[1:]:
        best = score[:, None] + trans
        score, at = best.max(0)
        score = score + e
        back.append(at)
    path = [int(score.argmax())]
    for at in reversed(back):
        path.append(int(at[path[-1]]))
    return path[::-1]


if __name__ == "__main__":
    opt = torch.optim.SGD([torch.zeros(3, 3, requires_grad=True)], lr=0.1)
