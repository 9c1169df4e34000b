"""The project boards: tasks in lists, each assigned to a colleague."""

from __future__ import annotations

from typing import Any

from ludus.environments.workplace_assistant.desk import Desk, Id, Text, reads, writes
from ludus.environments.workplace_assistant.rules import Refusal, choose, looks_like_address
from ludus.environments.workplace_assistant.tables import TASKS

LISTS = ("Backlog", "In Progress", "In Review", "Completed")
BOARDS = ("Back end", "Front end", "Design")


class Projects(Desk):
    """Tasks. A task can be assigned only to a colleague who already has one."""

    @reads
    async def project_management_get_task_information_by_id(self, task_id: Id, field: Text) -> Any:
        """Read one field of a task.

        Args:
            task_id: Id of the task, 8 digits.
            field: One of 'task_id', 'task_name', 'assigned_to_email', 'list_name', 'due_date', 'board'.
        """
        if not task_id:
            return "Task ID not provided."
        if not field:
            return "Field not provided."
        task = self.office.tasks.find(task_id)
        if task is None:
            return "Task not found."
        return {field: task[field]} if field in task else "Field not found."

    @reads
    async def project_management_search_tasks(
        self,
        task_name: Text = "",
        assigned_to_email: Text = "",
        list_name: Text = "",
        due_date: Text = "",
        board: Text = "",
    ) -> Any:
        """List the tasks that fit all that is given: the address in full, of the others a part.

        Args:
            task_name: Name of the task.
            assigned_to_email: Address of the person it is assigned to.
            list_name: Name of the list it is in.
            due_date: When it is due, YYYY-MM-DD.
            board: Name of the board.
        """
        parts = {"task_name": task_name, "list_name": list_name, "due_date": due_date, "board": board}
        if not assigned_to_email and not any(parts.values()):
            return "No search parameters provided."
        tasks = self.office.tasks.rows()
        if assigned_to_email:
            if not looks_like_address(assigned_to_email):
                return "Invalid email address."
            tasks = [row for row in tasks if row["assigned_to_email"] == assigned_to_email]
        for column, part in parts.items():
            if part:
                tasks = await self.rules.containing(tasks, part, column)
        return tasks

    @writes
    async def project_management_create_task(
        self, task_name: Text, assigned_to_email: Text, list_name: Text, due_date: Text, board: Text
    ) -> Any:
        """Create a task. Returns its id.

        Args:
            task_name: Name of the task.
            assigned_to_email: Address of the person it is assigned to.
            list_name: One of 'Backlog', 'In Progress', 'In Review', 'Completed'.
            due_date: When it is due, YYYY-MM-DD.
            board: One of 'Back end', 'Front end', 'Design'.
        """
        values = [task_name, assigned_to_email, list_name, due_date, board]
        if not all(values):
            return "Missing task details."
        checked = [_checked(self, field, value) for field, value in zip(TASKS[1:], values, strict=True)]
        number = self.rules.new_id(self.office.tasks)
        self.office.tasks.add(dict(zip(TASKS, (number, *checked), strict=True)))
        return number

    @writes
    async def project_management_delete_task(self, task_id: Id) -> Any:
        """Delete a task.

        Args:
            task_id: Id of the task, 8 digits.
        """
        if not task_id:
            return "Task ID not provided."
        return "Task deleted successfully." if self.office.tasks.remove(task_id) else "Task not found."

    @writes
    async def project_management_update_task(self, task_id: Id, field: Text, new_value: Text) -> Any:
        """Change one field of a task.

        Args:
            task_id: Id of the task, 8 digits.
            field: One of 'task_name', 'assigned_to_email', 'list_name', 'due_date', 'board'.
            new_value: What to put there.
        """
        if not task_id or not field or not new_value:
            return "Task ID, field, or new value not provided."
        value = _checked(self, field, new_value)
        if self.office.tasks.find(task_id) is None:
            return "Task not found."
        if field not in TASKS or field in self.rules.fixed:
            return "Field not valid."
        self.office.tasks.update(task_id, field, value)
        return "Task updated successfully."


def _checked(desk: Desk, field: str, value: Any) -> Any:
    """A valid value as it is stored."""
    if field == "assigned_to_email":
        value = value.lower()
        if not any((row["assigned_to_email"] or "").lower() == value for row in desk.office.tasks.rows()):
            raise Refusal("Nobody with this address has a task on the boards.")
    elif field == "list_name" and value not in LISTS:
        raise Refusal(choose("List", LISTS, "."))
    elif field == "board" and value not in BOARDS:
        raise Refusal(choose("Board", BOARDS, "."))
    elif field == "due_date":
        desk.rules.day(field, value)
    return value
