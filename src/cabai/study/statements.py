"""What is said to the database when a study is asked and told, made once: SQLAlchemy takes longer to make a statement
than SQLite to execute it. Importing this imports SQLAlchemy.

Executed with `of_study` and what else a condition names, and with the columns to be set.
"""

from __future__ import annotations

import sqlalchemy as sa

from cabai.study.schema import arm, observation, pull, study

_study: sa.BindParameter[int] = sa.bindparam("of_study")
_number: sa.BindParameter[int] = sa.bindparam("of_number")
_this = (study.c.id == _study, study.c.token == sa.bindparam("of_token"))
_one_pull = (pull.c.study == _study, pull.c.number == _number)

STUDY = sa.select(study).where(*_this)
LOCKED_STUDY = STUDY.with_for_update()
CHANGE_STUDY = sa.update(study).where(study.c.id == _study)

ARMS = sa.select(arm).where(arm.c.study == _study).order_by(arm.c.number)
CHANGE_ARM = sa.update(arm).where(arm.c.study == _study, arm.c.number == _number)

PULLS = sa.select(pull).where(pull.c.study == _study).order_by(pull.c.number)
PULL = sa.select(pull).where(*_one_pull)
ADD_PULL = sa.insert(pull)
CHANGE_PULL = sa.update(pull).where(*_one_pull)
REMOVE_PULL = sa.delete(pull).where(*_one_pull)

LOG = sa.select(observation).where(observation.c.study == _study).order_by(observation.c.place)
LOGGED = sa.select(observation).where(observation.c.study == _study, observation.c.number == _number)
ADD_TO_LOG = sa.insert(observation)
