"""How qualification proves theorems: the rows' own proofs, and scripts that only look like proofs."""

from __future__ import annotations

from typing import Any


def answer(task: Any, text: str) -> str:
    """A script in the block where the verifier looks."""
    return f"By induction.\n```coq\n{text}\n```"


def oracle(task: Any) -> str:
    """The proof of the row."""
    return answer(task, _theorem(task))


def preserving(task: Any) -> dict[str, Any]:
    """The proof with a lemma, a comment and another keyword."""
    lemma = "Lemma helper : True. Proof. exact I. Qed."
    return {
        "with_a_lemma": answer(task, f"{lemma}\n{_theorem(task)}"),
        "with_a_comment": answer(task, f"(* an old trick: Axiom, Admitted (* nested *) *)\n{_theorem(task)}"),
        "as_a_lemma": answer(task, _theorem(task).replace("Theorem", "Lemma", 1)),
        "defined": answer(task, _theorem(task).replace("Qed.", "Defined.")),
    }


def breaking(task: Any) -> dict[str, Any]:
    """Axioms in all their forms, checks switched off, another theorem, other libraries, commands that touch files."""
    head = f"Theorem {task.name} : {task.statement}."
    lie = "Axiom lie : forall P : Prop, P."
    loop = "Unset Guard Checking.\nFixpoint loop (n : nat) : False := loop n.\nSet Guard Checking."
    positive = "Unset Positivity Checking.\nInductive bad := mk (f : bad -> False).\nSet Positivity Checking."
    contradiction = "Definition no (b : bad) : False := match b with mk f => f b end.\nDefinition yes := no (mk no)."
    shadow = "Module Goal. Definition statement : Prop := True. End Goal."
    scripts = {
        "admitted": f"{head} Proof. Admitted.",
        "admit": f"{head} Proof. admit. Admitted.",
        "axiom": f"{lie}\n{head} Proof. apply lie. Qed.",
        "parameter": f"Parameter {task.name} : {task.statement}.",
        "hypothesis": f"Hypothesis lie : forall P : Prop, P.\n{head} Proof. apply lie. Qed.",
        "in_a_module_type": f"Module Type T. {lie} End T. Declare Module M : T.\n{head} Proof. apply M.lie. Qed.",
        "unguarded": f"{loop}\n{head} Proof. exfalso. exact (loop 0). Qed.",
        "not_positive": f"{positive}\n{contradiction}\n{head} Proof. exfalso. exact yes. Qed.",
        "global_flags": f"Global Unset Guard Checking.\n{loop}\n{head} Proof. exfalso. exact (loop 0). Qed.",
        "another_theorem": f"Theorem {task.name} : True. Proof. exact I. Qed.",
        "shadowed": f"{shadow}\nTheorem {task.name} : Goal.statement. exact I. Qed.",
        "redefined": f"Definition statement := True.\nTheorem {task.name} : statement. exact I. Qed.",
        "notation": f'Notation "x = y" := True.\n{_theorem(task).replace("Qed.", "Admitted.")}',
        "prints_the_verdict": f'{lie}\n{head} Proof. idtac "Closed under the global context". apply lie. Qed.',
        "silenced": f"Global Set Silent.\n{lie}\n{head} Proof. apply lie. Qed.",
        "loads": 'Load "/etc/passwd".',
        "plugin": f'Declare ML Module "ltac_plugin".\n{_theorem(task)}',
        "writes": f'Redirect "Answer" Print nat.\n{_theorem(task)}',
        "wrong_name": _theorem(task).replace(task.name, f"{task.name}_other"),
        "unfinished": f"{head} Proof. intros.",
    }
    return {**{name: answer(task, text) for name, text in scripts.items()}, "no_block": _theorem(task)}


def _theorem(task: Any) -> str:
    return f"Theorem {task.name} : {task.statement}.\nProof.\n{task.proof}\nQed."
